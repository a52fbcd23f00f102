package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A table of drivers has the CSI drivers and the built-in kinds that have volumes, and says
// how to see the others; a built-in kind whose program is missing is not Up.
func TestDriversOfCSIAreNotHiddenBehindBuiltinKinds(t *testing.T) {
	s := mounted(fixed)
	for _, kind := range []state.DriverName{"kubernetes.io/nfs", "kubernetes.io/local"} {
		s.drivers = append(s.drivers, manager.DriverStatus{DriverInfo: manager.DriverInfo{Name: kind, Builtin: true}, Up: true, Since: fixed})
	}
	r := newRig(t, s)
	lines := func(args ...string) []string {
		t.Helper()
		if code := r.do(t, args...); code != exitDone {
			t.Fatalf("%q: exit code %d: %s", args, code, r.stderr.String())
		}
		return strings.Split(strings.TrimSpace(r.stdout.String()), "\n")
	}
	if got := lines("get", "drivers"); len(got) != 3 || !strings.HasPrefix(got[1], string(emptyDir)) || !strings.HasPrefix(got[2], string(nfs)) {
		t.Errorf("%q", got)
	}
	if got := r.stderr.String(); got != "2 built-in kinds without a volume are shown with -o wide.\n" {
		t.Errorf("standard error: %q", got)
	}
	if got := lines("get", "drivers", "-o", "wide"); len(got) != 5 || r.stderr.Len() > 0 {
		t.Errorf("wide: %q, %q", got, r.stderr.String())
	}
	if got := lines("get", "drivers", "kubernetes.io/nfs"); len(got) != 2 || !strings.Contains(got[1], "Unusable") ||
		!strings.Contains(got[1], "mount.nfs is not installed; csi-volmgr doctor") {
		t.Errorf("by name: %q", got)
	}
	if got := lines("get", "drivers", "kubernetes.io/local"); !strings.Contains(got[1], "Up") {
		t.Errorf("a kind that lacks nothing: %q", got)
	}
	if got := strings.Join(lines("describe", "driver", "kubernetes.io/nfs"), "\n"); !strings.Contains(got, "Unusable, for") {
		t.Errorf("described: %s", got)
	}
	if got := strings.Join(lines("top"), "\n"); strings.Contains(got, "kubernetes.io/nfs") || !strings.Contains(got, "; 4 drivers: 4 up") {
		t.Errorf("top: %s", got)
	}
	if got := strings.Join(lines("top", "-o", "wide"), "\n"); !strings.Contains(got, "mount.nfs is not installed") {
		t.Errorf("top, wide: %s", got)
	}
	if got := strings.Join(lines("explain", "driver", "kubernetes.io/nfs"), "\n"); !strings.Contains(got, "mount.nfs is not installed on this node") || !strings.Contains(got, "stuck") {
		t.Errorf("explained: %s", got)
	}
	lines("get", "drivers", "-o", "json")
	var all server.List[server.DriverStatus]
	if err := json.Unmarshal([]byte(r.stdout.String()), &all); err != nil || len(all.Items) != 4 {
		t.Errorf("json: %d drivers, %v", len(all.Items), err)
	}
}
