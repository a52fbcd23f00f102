package faults

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/storageid"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// lose ends the daemon and removes its journal.
func (n *node) lose() {
	n.T.Helper()
	n.daemon.Ask()
	for _, file := range []string{"state.db", "state.db.spare"} {
		if err := os.Remove(n.Path("state/" + file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.T.Fatal(err)
		}
	}
}

// made applies the class, a claim and a pod of it, and returns the volume's name, its handle, and where it is.
func (n *node) made(class string) (name, handle, path string) {
	n.T.Helper()
	n.Do(class, "apply", "-f", "-")
	n.Apply(want{name: "data"}.String(), harness.Pod("db", fromClaim("data")))
	n.Mounted("db")
	volumes, err := n.API.PersistentVolumes(n.T.Context())
	if err != nil || len(volumes) != 1 {
		n.T.Fatalf("%+v, %v", volumes, err)
	}
	return volumes[0].Name, volumes[0].Handle, n.HostPath("db", "data")
}

// Two nodes that use one storage have a claim of one name each. Each has a volume of its own, and to delete one deletes
// no data of the other. A node that has lost its journal finds its volume again.
func TestNodesWithOneStorageHaveVolumesOfTheirOwn(t *testing.T) {
	t.Parallel()
	one, two := newNode(t, csistrict.Script{}), newPlace(t)
	two.StorageID = "node-2"
	two.start()
	two.Do("", "driver", "register", "--detach", filepath.Join(one.Root, "plugins", driverName, "csi.sock"))
	two.DriverUp(driverName)
	class := one.class("class", "")
	name, handle, path := one.made(class)
	other, foreign, there := two.made(class)
	if name == other || handle == foreign {
		t.Fatalf("both nodes have volume %s, %s, and %s, %s", name, handle, other, foreign)
	}
	one.write(filepath.Join(path, "f"), "of one")
	two.write(filepath.Join(there, "f"), "of two")
	one.wantFile(filepath.Join(path, "f"), "of one")
	two.DeletePods("db")
	two.DeleteClaims("data")
	two.NoVolumes()
	one.wantFile(filepath.Join(path, "f"), "of one")

	one.DeletePods("db")
	one.NoUnwanted()
	one.lose()
	one.start()
	one.DriverUp(driverName)
	again, same, path := one.made(class)
	if again != name || same != handle {
		t.Errorf("after the journal was lost: volume %s, %s, before %s, %s", again, same, name, handle)
	}
	one.wantFile(filepath.Join(path, "f"), "of one")
	one.DeletePods("db")
	one.DeleteClaims("data")
	one.verdict()
}

// A node that an earlier version used keeps the names of that version, also after it has lost its journal, and no flag
// changes that.
func TestAnEarlierVersionsNodeKeepsItsNames(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	n.StorageID = storageid.None
	n.begin(csistrict.Script{})
	class := n.class("class", "")
	name, handle, path := n.made(class)
	if uid := resolve.UID(resolve.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "data"}); name != "pvc-"+string(uid) {
		t.Errorf("volume %s, want the claim's uid %s alone", name, uid)
	}
	n.write(filepath.Join(path, "f"), "of before")
	n.daemon.Ask()
	n.StorageID = ""
	b, _ := n.Journal() // as an earlier version leaves it
	if err := errors.Join(b.CommitBucket(t.Context(), storageid.Bucket, map[string][]byte{"id": nil}), b.Close(), os.Remove(n.Path("state/"+storageid.File))); err != nil {
		t.Fatal(err)
	}
	if r := n.ends("rack-7"); !strings.Contains(r, "with --storage-id=none") {
		t.Errorf("a storage id for its volumes: %s", r)
	}
	for _, what := range []string{"upgraded", "lost"} {
		n.start()
		n.DriverUp(driverName)
		again, same, path := n.made(class)
		if again != name || same != handle {
			t.Errorf("%s: volume %s, %s, before %s, %s", what, again, same, name, handle)
		}
		n.wantFile(filepath.Join(path, "f"), "of before")
		n.DeletePods("db")
		n.NoUnwanted()
		if what == "upgraded" {
			n.lose()
		}
	}
	n.DeleteClaims("data")
	n.verdict()
}

// ends starts a daemon with a storage id, which must end by itself, and returns what it said.
func (n *node) ends(id string) string {
	n.T.Helper()
	r := harness.Run(n.T, "", program, append(n.Daemon(), "--storage-id", id)...)
	if r.Code == 0 {
		n.T.Errorf("a daemon with --storage-id=%s did its work: %+v", id, r)
	}
	return r.Stderr
}

// On a machine without an id no volume is made, and a claim and the problems say what to do; all else goes on. The id
// that the operator then gives stays.
func TestAMachineWithoutAnIDIsAskedForOne(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	n.StorageID = ""
	n.play(csistrict.Script{})
	n.startDriver()
	cmd := exec.Command("unshare", append([]string{
		"--mount", "sh", "-c", `[ ! -e /etc/machine-id ] || mount --bind /dev/null /etc/machine-id; exec "$@"`, "sh", program,
	}, n.Daemon()...)...)
	n.daemon = n.Answered(func() *harness.Process { return harness.Start(n.T, n.Path("daemon.log"), cmd) })
	n.DriverUp(driverName)
	n.Apply(n.class("class", ""), want{name: "data"}.String(), harness.Pod("db", fromClaim("data")),
		harness.Pod("other", volume{Name: "scratch", Source: "emptyDir: {}"}))
	n.explained("pvc", "data", "this node has no storage id", "csi-volmgr run --storage-id=NAME")
	n.explained("pod", "db", "csi-volmgr run --storage-id=NAME")
	n.Mounted("other")
	if said := n.Do("", "get", "problems"); !strings.Contains(said, "this node has no storage id") {
		t.Errorf("get problems: %s", said)
	}
	if n.begun("CreateVolume") != 0 {
		t.Error("a volume was made")
	}
	n.DeletePods("other")
	n.NoUnwanted()
	n.daemon.Ask()

	n.StorageID = "rack-7"
	n.start()
	n.Mounted("db")
	if said := n.Do("", "get", "problems"); strings.Contains(said, "storage id") {
		t.Errorf("get problems: %s", said)
	}
	n.daemon.Ask()
	if said := n.ends("rack-8"); !strings.Contains(said, "rack-7") {
		t.Errorf("another id: %s", said)
	}
	n.StorageID = ""
	n.start()
	n.Mounted("db")
	n.DeletePods("db")
	n.DeleteClaims("data")
	n.verdict()
}
