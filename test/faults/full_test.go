package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// The disk of the state directory is full. Running pods keep their volumes and can be
// deleted. The daemon refuses a new pod and names the cause, also after a restart, and
// accepts it once there is room again.
//
// Faults: A053.
func TestDiskOfTheStateDirectoryIsFull(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	state := filepath.Join(n.Dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=8m,mode=700"); err != nil {
		t.Fatal(err)
	}
	n.begin(csistrict.Script{})
	const pods = 10
	var all, docs, claims []string
	for i := range pods {
		all, claims = append(all, fmt.Sprintf("pod-%d", i)), append(claims, fmt.Sprintf("claim-%d", i))
		docs = append(docs, want{name: claims[i]}.String(), harness.Pod(all[i], fromClaim(claims[i])))
	}
	n.Apply(docs...)
	n.Mounted(all...)
	n.fill(filepath.Join(state, "rest"))

	refused := func() {
		t.Helper()
		r := n.CLI(harness.Pod("new", fromClaim(claims[0])), "apply", "-f", "-")
		if r.Code == 0 || !strings.Contains(r.Stderr, "the disk of the journal is full") {
			t.Errorf("apply on a full disk: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
		}
	}
	refused()
	n.DeletePods(all[:pods/2]...)
	n.daemon.Kill()
	n.start()
	n.DriverUp(driverName)
	refused()
	for _, p := range all[pods/2:] {
		n.verified(p)
	}
	n.DeletePods(all[pods/2:]...)
	n.NoVolumes()

	if err := os.Remove(filepath.Join(state, "rest")); err != nil {
		t.Fatal(err)
	}
	n.Apply(harness.Pod("new", fromClaim(claims[0])))
	n.Mounted("new")
	n.DeletePods("new")
	n.DeleteClaims(claims...)
	if err := unix.Unmount(state, unix.MNT_DETACH); err != nil { // this mount is the test's, not a volume's
		t.Error(err)
	}
	n.verdict()
}

// fill writes to a file until the disk is full.
func (n *node) fill(path string) {
	n.T.Helper()
	f, err := os.Create(path)
	if err != nil {
		n.T.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
}
