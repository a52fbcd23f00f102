package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A claim is deleted by mistake and applied anew. Its schedule, which keeps one, goes on with the new volume; the
// snapshot of the lost data leaves it, stays when the next one is ready, and gives the data back, also if the driver gives
// the new volume the handle of the lost one. The schedule's name does not pass to another claim.
func TestAScheduleKeepsTheSnapshotsOfALostVolume(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), claim("other", "64Mi", fileSystem, rwo),
			harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "lost")
		n.DeletePods("web")
		n.NoVolumes()
		names := func(field string) []string {
			return strings.Fields(n.CLI("", "get", "schedules", "-o", "jsonpath={.items[0]."+field+"[*]}").Stdout)
		}
		ready := func() (all []string) {
			for _, name := range names("snapshots") {
				if n.CLI("", "get", "snapshots", name, "-o", "jsonpath={.readyToUse}").Stdout == "true" {
					all = append(all, name)
				}
			}
			return all
		}
		n.Do("", "snapshot", "schedule", "pvc/data", "--every=1m", "--keep=1", "--name=s")
		n.Eventually("the first snapshot", func() bool { return len(ready()) > 0 })
		r := n.CLI("", "snapshot", "schedule", "pvc/other", "--every=1m", "--keep=1", "--name=s")
		if r.Code == 0 || !strings.Contains(r.Stderr, "it is of claim data") || !strings.Contains(r.Stderr, "delete schedule s -n default") {
			t.Errorf("for another claim: %s%s", r.Stdout, r.Stderr)
		}
		n.DeleteClaims("data")
		lost := ready()
		n.Apply(claim("data", "64Mi", fileSystem, rwo))
		n.Eventually("the snapshot of the lost volume to leave the schedule", func() bool { return slices.Equal(names("left"), lost) })
		n.Eventually("a snapshot of the new volume", func() bool { return len(ready()) > 0 })
		if now := ready(); slices.Contains(now, lost[0]) || !slices.Equal(names("left"), lost) {
			t.Errorf("it has %q, and %q left; want %q", now, names("left"), lost)
		}
		if got := n.Do("", "get", "schedules", "-o", "wide"); !strings.Contains(got, "another volume than claim data has now") || !strings.Contains(got, lost[0]) {
			t.Errorf("get schedules: %s", got)
		}
		n.Do("", "snapshot", "restore", lost[0], "pvc/copy")
		n.Apply(harness.Pod("reader", harness.FromClaim("copy", "copy")))
		n.Mounted("reader")
		wantFile(t, filepath.Join(n.HostPath("reader", "copy"), "f"), "lost")
		n.DeletePods("reader")
		n.forgetSchedule("s", "copy", "data", "other")
	})
}

// forgetSchedule deletes a schedule, all snapshots and claims.
func (n *node) forgetSchedule(name string, claims ...string) {
	n.T.Helper()
	n.Do("", "delete", "schedule", name)
	n.Do("", "delete", "snapshot", "--all", "--yes")
	n.DeleteClaims(claims...)
	n.nothingLeft()
}
