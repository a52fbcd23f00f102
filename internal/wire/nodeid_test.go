package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A driver's new node id is a problem, and explained, while a volume is attached with the former one.
func TestAChangedNodeIDIsAProblem(t *testing.T) {
	n, _ := start(t, dirs(t))
	up := controller.Driver{Name: "d.example", Conn: &scripted{asked: map[string]bool{}}, NodeID: "n1"}
	n.controller.DriverUp(up)
	v := state.Volume{Spec: &state.Spec{
		Driver: "d.example", Handle: "h", Name: "pv", Mode: state.Filesystem, AccessModes: []state.AccessMode{state.ReadWriteOnce},
	}}
	if _, err := n.controller.Attach(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	up.NodeID = "n2"
	n.controller.DriverUp(up)
	if err := n.controller.Detach(t.Context(), state.Volume{Spec: &state.Spec{Driver: "d.example", Handle: "another"}}); err != nil {
		t.Fatal(err) // it is called after the driver's change has been taken
	}
	problems := n.Views().Problems()
	if len(problems) != 1 || problems[0].Object != "driver d.example" || !strings.Contains(problems[0].Message, `gives this node the id "n2" now, and its volumes h are attached to node id "n1"`) {
		t.Fatalf("problems: %+v", problems)
	}
	e, err := server.Explain(server.Facts{
		Drivers: []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: "d.example"}, Up: true}}, Problems: problems, Now: time.Now(),
	}, "driver", "d.example")
	if err != nil || e.Verdict != server.Stuck || !strings.Contains(e.String(), problems[0].Message) {
		t.Errorf("%v\n%s", err, e)
	}
}
