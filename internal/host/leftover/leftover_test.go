package leftover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a root directory to scan.
type node struct {
	*testing.T
	root  string
	known Known
}

func newNode(t *testing.T) *node {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return &node{t, root, Known{Pods: map[state.PodUID]bool{}, Paths: map[string]bool{}}}
}

func (n *node) dir(rel string) string {
	n.Helper()
	path := filepath.Join(n.root, rel)
	must(n.T, os.MkdirAll(path, 0o755))
	return path
}

func (n *node) file(rel, text string) string {
	n.Helper()
	path := filepath.Join(n.dir(filepath.Dir(rel)), filepath.Base(rel))
	must(n.T, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (n *node) mount(rel string) string {
	n.Helper()
	path := n.dir(rel)
	must(n.T, unix.Mount("x", path, "tmpfs", 0, ""))
	n.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

func (n *node) bind(from, rel string) {
	n.Helper()
	path := n.dir(rel)
	must(n.T, unix.Mount(from, path, "", unix.MS_BIND, ""))
	n.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

func (n *node) scanner() Scanner { return Scanner{Root: n.root, Mounts: mount.New(n.root).List} }

func (n *node) remove() map[string]Item {
	n.Helper()
	items, err := n.scanner().Remove(n.Context(), func() Known { return n.known })
	must(n.T, err)
	return n.byPath(items)
}

func (n *node) scan() map[string]Item {
	n.Helper()
	items, err := n.scanner().Scan(n.Context(), n.known)
	must(n.T, err)
	return n.byPath(items)
}

func (n *node) byPath(items []Item) map[string]Item {
	byPath := map[string]Item{}
	for _, i := range items {
		rel, err := filepath.Rel(n.root, i.Path)
		must(n.T, err)
		byPath[rel] = i
	}
	return byPath
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Each kind of leftover, and whether it is removed.
//
// Items: O08.
func TestWhatIsSafeGoesAndTheRestIsTold(t *testing.T) {
	n := newNode(t)
	n.dir("pods/empty/volumes/kubernetes.io~csi/pv-1/mount")
	n.dir("pods/empty/volumes/kubernetes.io~empty-dir/cache")
	n.file("pods/marked/plugins/kubernetes.io~empty-dir/cache/ready", "")
	n.file("pods/kept/volumes/kubernetes.io~csi/pv-1/vol_data.json", "{}")
	n.file("pods/data/volumes/kubernetes.io~empty-dir/cache/precious", "bytes")
	n.file("pods/odd/plugins/kubernetes.io~empty-dir/cache/ready", "not empty")
	n.dir("pods/known/volumes/kubernetes.io~csi/pv-1")
	n.mount("pods/mounted/volumes/kubernetes.io~csi/pv-1/mount")
	n.dir("plugins/kubernetes.io/csi/d/old/globalmount")
	n.dir("plugins/kubernetes.io/csi/d/used/globalmount")
	n.mount("plugins/kubernetes.io/csi/d/staged/globalmount")
	n.dir("plugins/kubernetes.io/csi/volumeDevices/staging/pv-old")
	n.dir("plugins/kubernetes.io/csi/volumeDevices/publish/pv-used/uid")
	n.dir("plugins/kubernetes.io/csi/volumeDevices/pv-used/dev")
	n.dir("plugins/kubernetes.io/csi/volumeDevices/pv-gone/dev")
	n.mount("plugins/kubernetes.io/nfs/lost")
	n.mount("plugins/d/own")
	n.known.Pods["known"] = true
	n.known.Paths[filepath.Join(n.root, "plugins/kubernetes.io/csi/d/used/globalmount")] = true
	n.known.Paths[filepath.Join(n.root, "plugins/kubernetes.io/csi/volumeDevices/publish/pv-used/uid")] = true

	want := map[string]struct {
		safe bool
		why  string
	}{
		"pods/empty":                         {true, "empty"},
		"pods/marked":                        {true, "empty"},
		"pods/kept":                          {false, "vol_data.json"},
		"pods/data":                          {false, "precious"},
		"pods/odd":                           {false, "ready"},
		"pods/mounted":                       {false, "tmpfs is mounted"},
		"plugins/kubernetes.io/csi/d/old":    {true, "empty"},
		"plugins/kubernetes.io/csi/d/staged": {false, "tmpfs is mounted"},
		"plugins/kubernetes.io/csi/volumeDevices/staging/pv-old": {true, "empty"},
		"plugins/kubernetes.io/csi/volumeDevices/pv-gone":        {true, "empty"},
		"plugins/kubernetes.io/nfs/lost":                         {false, "tmpfs is mounted"},
	}
	for name, got := range map[string]map[string]Item{"scan": n.scan(), "remove": n.remove()} {
		for path, w := range want {
			if i, listed := got[path]; !listed || i.Safe != w.safe || !strings.Contains(i.Why, w.why) || i.Removed != (w.safe && name == "remove") || i.Error != "" {
				t.Errorf("%s: %s: got %+v (listed: %v), want safe %v since %q", name, path, i, listed, w.safe, w.why)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d leftovers, want %d: %v", name, len(got), len(want), got)
		}
	}
	for path, w := range want {
		if exists(filepath.Join(n.root, path)) == w.safe {
			t.Errorf("%s: is there: %v", path, !w.safe)
		}
	}
	for _, path := range []string{"pods/known/volumes/kubernetes.io~csi/pv-1", "plugins/kubernetes.io/csi/d/used/globalmount", "plugins/d/own", "pods"} {
		if !exists(filepath.Join(n.root, path)) {
			t.Errorf("%s is gone", path)
		}
	}
}

func TestNothingIsSafeWhileItIsNotKnownWhatIsWanted(t *testing.T) {
	n := newNode(t)
	n.dir("pods/empty/volumes")
	n.known.Unsure = "source file has not spoken yet"
	if i := n.remove()["pods/empty"]; i.Safe || i.Removed || !strings.Contains(i.Why, "has not spoken") || !exists(filepath.Join(n.root, "pods/empty")) {
		t.Errorf("got %+v", i)
	}
}

func TestAPodThatCameMeanwhileIsKept(t *testing.T) {
	n := newNode(t)
	n.dir("pods/back/volumes")
	asked := 0
	items, err := n.scanner().Remove(t.Context(), func() Known {
		if asked++; asked > 1 {
			return Known{Pods: map[state.PodUID]bool{"back": true}}
		}
		return Known{}
	})
	if err != nil || len(items) != 1 || items[0].Removed || items[0].Safe || !exists(filepath.Join(n.root, "pods/back/volumes")) {
		t.Errorf("got %+v, %v", items, err)
	}
}

// The worst that a cleanup tool has done: delete through a bind mount of a directory on the
// root file system, which no comparison of devices detects.
// Faults: A020.
func TestABindMountInALeftoverLosesNoFile(t *testing.T) {
	const canaries = 1000
	n := newNode(t)
	data := n.dir("elsewhere/data")
	for i := range canaries {
		n.file(fmt.Sprintf("elsewhere/data/canary-%d", i), "alive")
	}
	n.bind(data, "pods/gone/volumes/kubernetes.io~local-volume/pv")
	empty := n.dir("elsewhere/none")
	n.bind(empty, "pods/hollow/volumes/kubernetes.io~local-volume/pv") // looks empty, but is a mount all the same
	for range 100 {
		for path, i := range n.remove() {
			if i.Removed {
				t.Fatalf("%s was removed", path)
			}
		}
	}
	entries, err := os.ReadDir(data)
	if err != nil || len(entries) != canaries {
		t.Errorf("%d canaries left, %v; want %d", len(entries), err, canaries)
	}
	if !exists(empty) {
		t.Error("the directory behind the mount is gone")
	}
}

// Faults: A021.
func TestLinksAndDevicesInALeftoverLeadNowhere(t *testing.T) {
	n := newNode(t)
	outside := n.file("elsewhere/file", "alive")
	leftover := n.dir("pods/gone/volumes/kubernetes.io~empty-dir/x")
	must(t, os.Symlink("/", filepath.Join(leftover, "root")))
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(leftover, "dir")))
	must(t, os.Link(outside, filepath.Join(leftover, "hard")))
	must(t, unix.Mknod(filepath.Join(leftover, "node"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))))
	must(t, os.Symlink(n.dir("elsewhere/pod"), filepath.Join(n.root, "pods/linked"))) // a link, not a pod's directory
	for range 3 {
		if i := n.remove()["pods/gone"]; i.Safe || i.Removed {
			t.Fatalf("got %+v", i)
		}
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "alive" || !exists(filepath.Join(n.root, "elsewhere/pod")) {
		t.Errorf("outside: %q, %v", b, err)
	}
}

// Faults: A063.
func TestHundredsOfLeftoversAreSortedOut(t *testing.T) {
	n := newNode(t)
	const each = 250
	for i := range each {
		n.dir(fmt.Sprintf("pods/clean-%d/volumes/kubernetes.io~csi/pv/mount", i))
		n.file(fmt.Sprintf("pods/residue-%d/volumes/kubernetes.io~csi/pv/vol_data.json", i), "{}")
	}
	removed, kept := 0, 0
	for _, i := range n.remove() {
		if i.Removed {
			removed++
		} else if strings.Contains(i.Why, "vol_data.json") {
			kept++
		}
	}
	if left := n.scan(); removed != each || kept != each || len(left) != each {
		t.Errorf("%d removed, %d told of, %d left; want %d each", removed, kept, len(left), each)
	}
}

func TestATreeTooLargeToKnowIsKept(t *testing.T) {
	n := newNode(t)
	n.dir("pods/deep/" + strings.Repeat("d/", maxDepth+2))
	for i := range maxEntries + 1 {
		n.dir(fmt.Sprintf("pods/wide/%d", i))
	}
	for path, i := range n.remove() {
		if i.Safe || i.Removed || !strings.Contains(i.Why, "more than") {
			t.Errorf("%s: %+v", path, i)
		}
	}
}
