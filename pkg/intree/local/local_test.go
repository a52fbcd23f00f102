package local_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/drivertest"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func config(t *testing.T, path, fsType string) json.RawMessage {
	t.Helper()
	src := map[string]string{"path": path}
	if fsType != "" {
		src["fsType"] = fsType
	}
	b, err := json.Marshal(src)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What a restart knows of a volume is its record, and that is enough to remove it.
//
// Items: M15.
func TestContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T, l state.Layout) drivertest.Subject {
		dir := l.Root + "-disk" // the same one after a restart
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return drivertest.Subject{
			Driver: local.New(local.Config{Layout: l, Kernel: mount.New(l.Root), Allow: []string{dir}}), Kind: local.Kind, Config: config(t, dir, ""),
		}
	})
}

const (
	podA = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")
	podB = state.PodUID("7f3c2a10-0000-4000-8000-000000000002")
)

// node is a node on which paths below disks are allowed.
type node struct {
	*testing.T
	layout state.Layout
	disks  string
	kernel *mount.Kernel
	driver *local.Driver
}

func newNode(t *testing.T, allow ...string) *node {
	t.Helper()
	n := &node{T: t, layout: state.Layout{Root: t.TempDir()}, disks: t.TempDir()}
	n.kernel = mount.New(n.layout.Root)
	n.driver = local.New(local.Config{Layout: n.layout, Kernel: n.kernel, Allow: append(allow, n.disks)})
	if err := os.Mkdir(n.disks+"/a", 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// volume is the record of a volume that pods have mounted or are to.
func (n *node) volume(path string, pods ...state.PodUID) state.Volume {
	n.Helper()
	v := state.Volume{
		Spec:   state.Spec{Driver: local.Kind, Name: "pv-1", Builtin: true, Mode: state.Filesystem, Config: config(n.T, path, "")},
		Mounts: map[state.PodUID]state.Mount{},
	}
	for _, pod := range pods {
		v.Mounts[pod] = state.Mount{Fact: state.Fact{Phase: state.Entering}, MountSpec: state.MountSpec{Pod: state.Pod{UID: pod}, Target: n.target(pod)}}
	}
	return v
}

func (n *node) target(pod state.PodUID) string {
	return n.layout.BuiltinTarget(local.Kind, pod, "pv-1")
}

func (n *node) publish(v state.Volume, pod state.PodUID) {
	n.Helper()
	if err := n.driver.Publish(n.Context(), v, pod); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { unix.Unmount(n.target(pod), unix.MNT_DETACH) })
}

func (n *node) unpublish(v state.Volume, pod state.PodUID) {
	n.Helper()
	if err := n.driver.Unpublish(n.Context(), v, pod); err != nil {
		n.Fatal(err)
	}
	if _, err := os.Lstat(n.target(pod)); !os.IsNotExist(err) {
		n.Errorf("target: %v", err)
	}
}

// wantRefused fails the test unless err is a refusal that wraps reason.
func (n *node) wantRefused(what string, err, reason error) {
	n.Helper()
	if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Refused || !errors.Is(err, reason) {
		n.Errorf("%s: got %v, want a refusal: %v", what, err, reason)
	}
}

// M08: a directory is bound, for each pod that has it, and its data stay.
// Items: M08.
func TestDirectoryIsSharedByItsPods(t *testing.T) {
	n := newNode(t)
	v := n.volume(n.disks+"/a", podA, podB)
	n.publish(v, podA)
	n.publish(v, podB)
	if err := os.WriteFile(n.target(podA)+"/f", []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(n.target(podB) + "/f"); err != nil || string(data) != "data" {
		t.Errorf("got %q, %v", data, err)
	}
	n.unpublish(v, podA)
	n.unpublish(v, podB)
	if data, err := os.ReadFile(n.disks + "/a/f"); err != nil || string(data) != "data" {
		t.Errorf("after both have gone: got %q, %v", data, err)
	}
}

// M08, M16: a read-only claim and mount options.
// Items: M08, M16.
func TestReadOnlyAndOptionsHold(t *testing.T) {
	n := newNode(t)
	v := n.volume(n.disks+"/a", podA)
	v.Spec.MountFlags = []string{"nosuid,noexec"}
	m := v.Mounts[podA]
	m.ReadOnly = true
	v.Mounts[podA] = m
	n.publish(v, podA)
	if err := os.WriteFile(n.target(podA)+"/f", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("write: got %v, want EROFS", err)
	}
	var st unix.Statfs_t
	const want = unix.ST_NOSUID | unix.ST_NOEXEC | unix.ST_RDONLY
	if err := unix.Statfs(n.target(podA), &st); err != nil || st.Flags&want != want {
		t.Errorf("flags %#x, %v", st.Flags, err)
	}
	n.unpublish(v, podA)
}

// M08: the first pod's group gets the volume; another pod's group changes nothing.
// Items: M08.
func TestGroupOfTheFirstPodHolds(t *testing.T) {
	n := newNode(t)
	v := n.volume(n.disks+"/a", podA)
	group := func(gid int64, pod state.PodUID) {
		m := v.Mounts[pod]
		m.FSGroup = &gid
		v.Mounts[pod] = m
	}
	want := func(gid uint32) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(n.disks+"/a", &st); err != nil || st.Gid != gid {
			t.Errorf("got group %d, %v, want %d", st.Gid, err, gid)
		}
	}
	group(1001, podA)
	n.publish(v, podA)
	want(1001)
	v.Mounts[podB] = n.volume("", podB).Mounts[podB]
	group(1002, podB)
	n.publish(v, podB)
	want(1001)
	n.unpublish(v, podA)
	n.unpublish(v, podB)
	delete(v.Mounts, podA)
	n.publish(v, podB)
	want(1002)
	n.unpublish(v, podB)
}

// M08: what is on a device is mounted; a device with nothing on it is not formatted (R17).
// Items: M08.
func TestFileSystemOfADevice(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "ext4")
	link := n.disks + "/by-id"
	if err := os.Symlink(device, link); err != nil {
		t.Fatal(err)
	}
	v := n.volume(link, podA, podB)
	v.Spec.MountFlags = []string{"noatime"}
	n.publish(v, podA)
	n.publish(v, podB)
	if err := os.WriteFile(n.target(podA)+"/f", []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(n.target(podB) + "/f"); err != nil || string(data) != "data" {
		t.Errorf("got %q, %v", data, err)
	}
	n.unpublish(v, podA)
	n.unpublish(v, podB)
	v.Spec.Config = config(t, link, "xfs")
	if err := n.driver.Publish(t.Context(), v, podA); err == nil || !strings.Contains(err.Error(), "never formatted") {
		t.Errorf("as xfs: got %v", err)
	}
	v.Spec.Config = config(t, link, "")
	n.publish(v, podA)
	if data, err := os.ReadFile(n.target(podA) + "/f"); err != nil || string(data) != "data" {
		t.Errorf("after a mount as another type: got %q, %v", data, err)
	}
	n.unpublish(v, podA)
}

func TestBlankDeviceIsNotFormatted(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "")
	if err := n.driver.Publish(t.Context(), n.volume(device, podA), podA); err == nil || !strings.Contains(err.Error(), "mkfs.ext4") {
		t.Errorf("got %v", err)
	}
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	head := make([]byte, 1<<20)
	if _, err := f.Read(head); err != nil || strings.Trim(string(head), "\x00") != "" {
		t.Errorf("something was written, %v", err)
	}
}

// M08: a raw block volume is the device itself; nothing is mounted.
// Items: M08.
func TestRawBlockVolumeIsADevice(t *testing.T) {
	n := newNode(t, "/dev")
	v := n.volume(drivertest.Device(t, ""), podA)
	v.Spec.Mode = state.Block
	n.publish(v, podA)
	if seen, err := n.kernel.Look(t.Context(), n.target(podA)); err != nil || !seen.Exists || seen.Mounted {
		t.Errorf("got %+v, %v", seen, err)
	}
	n.unpublish(v, podA)
	v = n.volume(n.disks+"/a", podA)
	v.Spec.Mode = state.Block
	n.wantRefused("a directory", n.driver.Publish(t.Context(), v, podA), local.ErrType)
}

func TestWhatIsNoVolumeIsRefused(t *testing.T) {
	n := newNode(t)
	if err := os.WriteFile(n.disks+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.wantRefused("a file", n.driver.Publish(t.Context(), n.volume(n.disks+"/file", podA), podA), local.ErrType)
	if err := n.driver.Publish(t.Context(), n.volume(n.disks+"/nothing", podA), podA); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing: got %v", err)
	}
}

// C23: what counts is where a path leads.
// Attacks: C23.
func TestAttackLinkOutOfTheAllowedIsDenied(t *testing.T) {
	n := newNode(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, n.disks+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{n.disks + "/link", outside, "/", "/etc", n.disks + "/../..", n.disks + "-x", "relative"} {
		if path == n.disks+"-x" {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Remove(path) })
		}
		n.wantRefused(path, n.driver.Publish(t.Context(), n.volume(path, podA), podA), hostpath.ErrDenied)
	}
	none := local.New(local.Config{Layout: n.layout, Kernel: n.kernel})
	n.wantRefused("by default", none.Publish(t.Context(), n.volume(n.disks+"/a", podA), podA), hostpath.ErrDenied)
}

// C2, C23: who swaps the volume's directory for a link while it is mounted gets
// nothing mounted from where the link leads.
// Attacks: C2, C23.
func TestAttackSwappedDirectoryIsNotMounted(t *testing.T) {
	n := newNode(t)
	outside := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "canary"), nil, 0o600), os.Symlink(outside, n.disks+"/link")); err != nil {
		t.Fatal(err)
	}
	stop := drivertest.Swap(t, n.disks+"/a", n.disks+"/link")
	v := n.volume(n.disks+"/a", podA)
	mounted := 0
	for range 300 {
		if err := n.driver.Publish(t.Context(), v, podA); err == nil {
			mounted++
		}
		if _, err := os.Lstat(n.target(podA) + "/canary"); err == nil {
			t.Fatal("what the link leads to is mounted")
		}
		n.unpublish(v, podA)
	}
	if swaps := stop(); swaps == 0 || mounted == 0 {
		t.Errorf("%d swaps, %d mounts: nothing was raced", swaps, mounted)
	}
}
