package report_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// An API server refuses a Node or CSINode as a whole. A driver whose name or topology CSI allows and Kubernetes does
// not, or whose label this identity may not write, is left out and named; the others are written.
//
// Items: J11.
func TestADriverThatTheServerRefusesKeepsNoOtherOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(node())
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb == "patch" && strings.Contains(r.BodyText, "node-restriction.kubernetes.io/rack") {
				return &fakeapi.Answer{Code: http.StatusForbidden} // as of the admission plugin NodeRestriction
			}
			if strings.Contains(r.BodyText, "Upper.Test") || strings.Contains(r.BodyText, "a..test") {
				return &fakeapi.Answer{Code: http.StatusUnprocessableEntity}
			}
			return nil
		})
		w.reporter.DriverUp(report.Driver{Name: "a..test", NodeID: "v"})
		w.reporter.DriverUp(report.Driver{Name: "good.test", NodeID: "y", Topology: map[string]string{"zone": "a", "rack": "1"}})
		w.reporter.DriverUp(report.Driver{Name: "label.test", NodeID: "x", Topology: map[string]string{"Upper.Test/zone": "a"}})
		w.reporter.DriverUp(report.Driver{Name: "other.test", NodeID: "z", Topology: map[string]string{"row": "2"}})
		w.reporter.DriverUp(report.Driver{Name: "rack.test", NodeID: "w", Topology: map[string]string{"node-restriction.kubernetes.io/rack": "1"}})
		w.seeNode()
		n := w.seeNode()
		if got, want := csiNode(t, w.server), `[{"name":"good.test","nodeID":"y","topologyKeys":["rack","zone"]},{"name":"other.test","nodeID":"z","topologyKeys":["row"]}]`; got != want {
			t.Errorf("CSINode: got %s, want %s", got, want)
		}
		if n.Labels["rack"] != "1" || n.Labels["row"] != "2" || n.Annotations[report.NodeIDAnnotation] != `{"good.test":"y","other.test":"z"}` {
			t.Errorf("node: %v %v", n.Annotations, n.Labels)
		}
		for _, text := range []string{"driver a..test: GetPluginInfo: name", "driver label.test: NodeGetInfo: accessible_topology: Upper.Test/zone=a", "driver rack.test: write node n1"} {
			if p := w.reporter.Findings(); len(p) != 1 || !strings.Contains(p[0].Text, text) {
				t.Errorf("problems lack %q: %v", text, p)
			}
		}
	})
}
