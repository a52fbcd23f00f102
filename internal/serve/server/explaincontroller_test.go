package server

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The explanation of a driver tells where its Controller service is, what is wrong with it, and what to register.
func TestADriversControllerIsExplained(t *testing.T) {
	const name state.DriverName = "d.example.com"
	up := manager.DriverStatus{DriverInfo: manager.DriverInfo{Name: name, Endpoint: "/run/node.sock"}, Up: true, Generation: 1}
	waiting := ClaimStatus{Namespace: "default", Name: "c", Phase: "Pending", Cause: Cause{Code: state.NoController, Of: string(name)}}
	second := SocketStatus{Path: "/reg/2.sock", Driver: name, Endpoint: "/run/controller.sock", State: "waiting", Problem: "driver name is registered by /reg/1.sock"}
	apart := ControllerStatus{Endpoint: "/run/controller.sock", Generation: 3, Up: true, Version: "v2"}
	away := ControllerStatus{Endpoint: "/run/controller.sock", Problem: "connection refused"}
	none := ControllerStatus{Problem: "no Controller service is served at /run/node.sock"}
	for what, c := range map[string]struct {
		controller *ControllerStatus
		claims     []ClaimStatus
		sockets    []SocketStatus
		verdict    string
		want       []string
	}{
		"at the same endpoint": {&ControllerStatus{Up: true}, nil, nil, Fine, nil},
		"in a cluster":         {nil, nil, nil, Fine, nil},
		"up":                   {&apart, nil, nil, Fine, []string{"generation 3, version v2, at /run/controller.sock"}},
		"away":                 {&away, nil, nil, Waiting, []string{"its controller at /run/controller.sock is away: connection refused", "mounts do not wait"}},
		"none":                 {&none, nil, nil, Fine, []string{"none: no Controller service"}},
		"none, and a claim": {&none, []ClaimStatus{waiting}, nil, Stuck, []string{
			"serves no Controller service at /run/node.sock, and claims wait", "register /run/node.sock --controller=", "driver-controller=d.example.com=",
		}},
		"a second socket": {&none, nil, []SocketStatus{second}, Working, []string{
			"a second socket registers the name and waits: /reg/2.sock", "register /run/node.sock --controller=/run/controller.sock",
		}},
	} {
		f := Facts{Drivers: []manager.DriverStatus{up}, Claims: c.claims, Sockets: c.sockets}
		if c.controller != nil {
			f.Controllers = map[state.DriverName]ControllerStatus{name: *c.controller}
		}
		e := Explanation{Kind: "driver", Name: string(name), Verdict: Fine}
		f.explainDriver(&e)
		var text []string
		for _, l := range e.Lines {
			text = append(text, l.Label+": "+l.Text)
		}
		said := strings.Join(text, "\n")
		if e.Verdict != c.verdict {
			t.Errorf("%s: %s, want %s:\n%s", what, e.Verdict, c.verdict, said)
		}
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in\n%s", what, want, said)
			}
		}
	}
}

// A volume that waits for its driver's controller says so, whether the node part is up or not.
func TestAStepThatWaitsForTheControllerIsExplained(t *testing.T) {
	const why = "the controller of driver d.example.com at /c.sock is away: connection refused"
	for _, up := range []bool{true, false} {
		f := Facts{Drivers: []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: "d.example.com"}, Up: up, Generation: 1, Problem: "the node part is away"}}}
		s := step{kind: plan.Detach, driver: "d.example.com", code: plan.AttacherDown, reason: why}
		e := Explanation{Verdict: Fine}
		s.explain(f, &e)
		var text []string
		for _, l := range e.Lines {
			text = append(text, l.Label+": "+l.Text)
		}
		said := strings.Join(text, "\n")
		for _, want := range []string{"because: " + why, "as soon as the driver's controller answers", "you can: start the driver's controller"} {
			if !strings.Contains(said, want) {
				t.Errorf("no %q in\n%s", want, said)
			}
		}
		if e.Verdict != Waiting || strings.Contains(said, "node part") || strings.Contains(said, "is down") {
			t.Errorf("%s:\n%s", e.Verdict, said)
		}
	}
}
