package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
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

// After a restart the driver removes a volume with nothing but its record.
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
			Driver: local.New(local.Config{Layout: l, Kernel: mount.New(l.Root), Allow: []string{dir}}), Kind: local.Kind, Config: config(t, dir, ""), Grows: true,
		}
	})
}

const (
	podA = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")
	podB = state.PodUID("7f3c2a10-0000-4000-8000-000000000002")
)

// node is a node that allows paths below disks.
type node struct {
	*testing.T
	layout state.Layout
	disks  string
	kernel *mount.Kernel
	driver *local.Driver
	calls  []string // of programs
}

// run records a program and runs it, unless it grows a file system: this kernel may not
// allow that.
func (n *node) run(ctx context.Context, c program.Command) error {
	n.calls = append(n.calls, strings.Join(append([]string{c.Name}, c.Args...), " "))
	if slices.Contains([]string{"resize2fs", "xfs_growfs", "btrfs"}, c.Name) {
		return nil
	}
	return new(program.Runner).Run(ctx, c)
}

func newNode(t *testing.T, allow ...string) *node {
	t.Helper()
	n := &node{T: t, layout: state.Layout{Root: t.TempDir()}, disks: t.TempDir()}
	n.kernel = mount.New(n.layout.Root)
	n.driver = local.New(local.Config{Layout: n.layout, Kernel: n.kernel, Allow: append(allow, n.disks), Run: n.run})
	if err := os.Mkdir(n.disks+"/a", 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// volume returns the record of a volume that pods have or will get.
func (n *node) volume(path string, pods ...state.PodUID) state.Volume {
	n.Helper()
	v := state.Volume{
		Spec:   &state.Spec{Driver: local.Kind, Name: "pv-1", Builtin: true, Mode: state.Filesystem, Config: config(n.T, path, "")},
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

// M08: each pod that has the volume gets a bind mount of the directory, and the data
// stay.
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

// What is mounted below one pod's directory is neither in the host's nor in another pod's, unless the pod asked to share
// its mounts. What the host mounts reaches all. A mount of an earlier version, a peer, is unmounted like these.
//
// Items: M08.
func TestMountsBelowAPodsDirectoryAreItsOwn(t *testing.T) {
	n := newNode(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := n.disks + "/a"
	must(unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	must(unix.Mount("", dir, "", unix.MS_SHARED, ""))
	must(os.Mkdir(dir+"/sub", 0o755))
	mounted := func(dir string) bool {
		t.Helper()
		seen, err := n.kernel.Look(t.Context(), dir+"/sub")
		must(err)
		return seen.Mounted
	}
	for _, way := range []string{"", "Bidirectional", "earlier"} {
		v := n.volume(dir, podA, podB)
		m := v.Mounts[podA]
		if way == "Bidirectional" {
			m.Context = map[string]string{"csi-volmgr.dev/mount-propagation": way}
		}
		v.Mounts[podA] = m
		n.publish(v, podA)
		n.publish(v, podB)
		if way == "earlier" {
			must(unix.Unmount(n.target(podA), 0))
			must(unix.Mount(dir, n.target(podA), "", unix.MS_BIND, ""))
			n.publish(v, podA) // as by a daemon that does not know whether it was made
		}
		must(unix.Mount("x", n.target(podA)+"/sub", "tmpfs", 0, ""))
		if shared := way != ""; mounted(dir) != shared || mounted(n.target(podB)) != shared {
			t.Errorf("%q: on the host %v, in the other pod %v", way, mounted(dir), mounted(n.target(podB)))
		}
		must(unix.Unmount(n.target(podA)+"/sub", 0))
		must(unix.Mount("x", dir+"/sub", "tmpfs", 0, ""))
		if !mounted(n.target(podA)) || !mounted(n.target(podB)) {
			t.Errorf("%q: the host's mount is in pod A: %v, in B: %v", way, mounted(n.target(podA)), mounted(n.target(podB)))
		}
		must(unix.Unmount(dir+"/sub", 0))
		n.unpublish(v, podA)
		n.unpublish(v, podB)
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

// M08: the volume gets the first pod's group; another pod's group changes nothing.
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

// M08: the driver mounts the file system on a device and never formats it as another
// (R17).
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

// The copy of an XFS device has its UUID and is mounted beside it. The error of a damaged one does not suggest to
// wipe it.
func TestACopyOfAnXFSDeviceIsMountedBesideIt(t *testing.T) {
	n := newNode(t, "/dev")
	device, twin := drivertest.Device(t, "xfs"), drivertest.Device(t, "xfs")
	copyDevice(t, device, twin)
	first, second := n.volume(device, podA), n.volume(twin, podB)
	first.Spec.Config, second.Spec.Config = config(t, device, "xfs"), config(t, twin, "xfs")
	n.publish(first, podA)
	n.publish(second, podB)
	n.unpublish(second, podB)
	n.unpublish(first, podA)
	f, err := os.OpenFile(twin, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, 508), 4) // its magic stays
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := n.driver.Publish(t.Context(), second, podB); err == nil || strings.Contains(err.Error(), "wipefs") {
		t.Errorf("a damaged copy: %v", err)
	}
}

// copyDevice copies a device to another one with a file system of the same size and kind.
func copyDevice(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Sync()
	}
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

// R17: a device that is proven blank gets its file system once. The driver checks a
// file system before it mounts it, but not while another pod has it mounted.
//
// Items: M08.
func TestBlankDeviceIsFormattedOnce(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "")
	v := n.volume(device, podA, podB)
	n.publish(v, podA)
	if err := os.WriteFile(n.target(podA)+"/f", []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.publish(v, podB)
	n.unpublish(v, podA)
	n.unpublish(v, podB)
	n.publish(v, podA)
	if data, err := os.ReadFile(n.target(podA) + "/f"); err != nil || string(data) != "data" {
		t.Errorf("got %q, %v", data, err)
	}
	n.unpublish(v, podA)
	if want := []string{"mkfs.ext4 -F -q -m 0 -E nodiscard " + device, "e2fsck -p " + device}; !slices.Equal(n.calls, want) {
		t.Errorf("run %q, want %q", n.calls, want)
	}
}

// R17: the driver does not format a device with a single byte on it, nor a blank one of
// a read-only volume or for an unknown file system.
//
// Items: C35, M08.
func TestDeviceThatIsNotProvenBlankIsNotFormatted(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "")
	v := n.volume(device, podA)
	m := v.Mounts[podA]
	m.ReadOnly = true
	v.Mounts[podA] = m
	if err := n.driver.Publish(t.Context(), v, podA); err == nil || !strings.Contains(err.Error(), "is blank, and the volume is read-only") {
		t.Errorf("read-only: got %v", err)
	}
	v = n.volume(device, podA)
	v.Spec.Config = config(t, device, "zfs")
	if err := n.driver.Publish(t.Context(), v, podA); err == nil || !strings.Contains(err.Error(), "want one of btrfs") {
		t.Errorf("zfs: got %v", err)
	}
	v.Spec.Config = config(t, drivertest.Device(t, "ext4"), "xfs")
	var refused *state.CallError
	if err := n.driver.Publish(t.Context(), v, podA); !errors.As(err, &refused) || refused.Code != state.FilesystemMismatch || !strings.Contains(err.Error(), "xfs is asked for, and the disk has ext; what") {
		t.Errorf("another file system: got %v", err)
	}
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 5<<20); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := n.driver.Publish(t.Context(), n.volume(device, podA), podA); err == nil || !strings.Contains(err.Error(), "never formatted") {
		t.Errorf("a byte on it: got %v", err)
	}
	if len(n.calls) != 0 {
		t.Errorf("run %q", n.calls)
	}
}

// M09: the driver grows the file system of a device to all of the device. For a
// directory and a raw device it runs nothing.
//
// Items: M09.
func TestExpand(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "ext4")
	expand := func(what string, v state.Volume, bytes, want int64, call string) {
		t.Helper()
		n.calls = nil
		if size, err := n.driver.Expand(t.Context(), v, podA, bytes); err != nil || size != want {
			t.Errorf("%s: got %d, %v, want %d", what, size, err, want)
		}
		if got := strings.Join(n.calls, "; "); got != call {
			t.Errorf("%s: run %q, want %q", what, got, call)
		}
	}
	v := n.volume(device, podA)
	n.publish(v, podA)
	expand("ext4", v, 1<<30, 16<<20, "resize2fs "+device)
	v.Spec.Config = config(t, drivertest.Device(t, "ext4"), "") // as after a change of /dev/disk/by-path
	n.calls = nil
	if _, err := n.driver.Expand(t.Context(), v, podA, 1); !errors.Is(err, disk.ErrIdentity) || len(n.calls) != 0 {
		t.Errorf("another device than the mounted one: got %v, run %q", err, n.calls)
	}
	for fsType, call := range map[string]string{"xfs": "xfs_growfs " + n.target(podA), "btrfs": "btrfs filesystem resize max " + n.target(podA)} {
		v.Spec.Config = config(t, device, fsType)
		expand(fsType, v, 1<<30, 16<<20, call)
	}
	n.unpublish(v, podA)
	v.Spec.Mode = state.Block
	expand("raw device", v, 1<<30, 16<<20, "")
	expand("directory", n.volume(n.disks+"/a", podA), 7<<30, 7<<30, "")
	_, err := n.driver.Expand(t.Context(), n.volume("/etc", podA), podA, 1)
	n.wantRefused("not allowed", err, hostpath.ErrDenied)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.driver.Expand(ended, v, podA, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: got %v", err)
	}
}

// M08: a raw block volume is the device itself, bound to its path in the pod.
// Items: M08.
func TestRawBlockVolumeIsADevice(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "")
	v := n.volume(device, podA)
	v.Spec.Mode = state.Block
	n.publish(v, podA)
	n.publish(v, podA)
	var want unix.Stat_t
	if err := unix.Stat(device, &want); err != nil {
		t.Fatal(err)
	}
	if seen, err := n.kernel.Look(t.Context(), n.target(podA)); err != nil || !seen.BlockDevice || !seen.Mounted || seen.Dev != uint64(unix.Major(want.Rdev))<<32|uint64(unix.Minor(want.Rdev)) {
		t.Errorf("got %+v, %v", seen, err)
	}
	n.unpublish(v, podA)
	v = n.volume(n.disks+"/a", podA)
	v.Spec.Mode = state.Block
	n.wantRefused("a directory", n.driver.Publish(t.Context(), v, podA), local.ErrType)
	if len(n.calls) != 0 {
		t.Errorf("run %q", n.calls)
	}
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

// C23: the target of a path decides.
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

// C2, C23: a process that swaps the volume's directory for a link while the driver
// mounts it does not get the link's target mounted.
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
	for i := 0; i < 300 || mounted == 0 && i < 100_000; i++ {
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
