package emptydir_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/emptydir"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func newDriver(l state.Layout) *emptydir.Driver {
	return emptydir.New(emptydir.Config{Layout: l, Kernel: mount.New(l.Root)})
}

// After a restart the driver removes a volume with nothing but its record.
//
// Items: M15, E16, M01.
func TestContractOnDisk(t *testing.T)   { contract(t, `{}`) }
func TestContractInMemory(t *testing.T) { contract(t, `{"medium": "Memory", "sizeLimit": "4Mi"}`) }

func contract(t *testing.T, config string) {
	drivertest.Run(t, func(_ *testing.T, l state.Layout) drivertest.Subject {
		return drivertest.Subject{
			Driver: newDriver(l), Kind: emptydir.Kind, Config: json.RawMessage(config), Grows: strings.Contains(config, "Memory"),
		}
	})
}

const pod = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")

// node is a node's root directory with one volume.
type node struct {
	t      *testing.T
	layout state.Layout
	volume state.Volume
}

func newNode(t *testing.T, config string) *node {
	t.Helper()
	l := state.Layout{Root: t.TempDir()}
	n := &node{t, l, state.Volume{
		Spec: &state.Spec{Driver: emptydir.Kind, Name: "scratch", Builtin: true, Config: json.RawMessage(config)},
		Mounts: map[state.PodUID]state.Mount{pod: {MountSpec: state.MountSpec{
			Pod: state.Pod{UID: pod}, Target: l.BuiltinTarget(emptydir.Kind, pod, "scratch"),
		}}},
	}}
	t.Cleanup(func() { unix.Unmount(n.target(), unix.MNT_DETACH) })
	return n
}

func (n *node) target() string { return n.volume.Mounts[pod].Target }

func (n *node) fsGroup(gid int64) {
	m := n.volume.Mounts[pod]
	m.FSGroup = &gid
	n.volume.Mounts[pod] = m
}

func (n *node) publish() {
	n.t.Helper()
	if err := newDriver(n.layout).Publish(n.t.Context(), n.volume, pod); err != nil {
		n.t.Fatal(err)
	}
}

// mounted returns the fields of the mount at the target in the mount table, or "".
func (n *node) mounted() string {
	n.t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); f[4] == n.target() {
			return strings.Join(f[5:], " ")
		}
	}
	return ""
}

func (n *node) wantMode(path string, mode, gid uint32) {
	n.t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&0o7777 != mode || st.Gid != gid {
		n.t.Errorf("%s: got %04o of group %d, %v, want %04o of %d", path, st.Mode&0o7777, st.Gid, err, mode, gid)
	}
}

// Items: M01.
func TestDiskIsADirectoryForEveryUser(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	n := newNode(t, `{"sizeLimit": "1Gi"}`)
	n.publish()
	n.wantMode(n.target(), 0o777, 0)
	if got := n.mounted(); got != "" {
		t.Errorf("mounted: %s, want nothing", got)
	}
}

// TestAPublishThatWasCutOffIsTakenUp: Publish sets the mode of a directory that an
// interrupted Publish made, if no mark says that the directory is the pod's.
func TestAPublishThatWasCutOffIsTakenUp(t *testing.T) {
	n := newNode(t, `{}`)
	if err := os.MkdirAll(n.target(), 0o700); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.wantMode(n.target(), 0o777, 0)
}

// A volume in memory that an earlier version made keeps the mode that it has.
//
// Items: M01.
func TestMemoryThatIsMountedKeepsItsMode(t *testing.T) {
	n := newNode(t, `{"medium": "Memory"}`)
	n.publish()
	if err := os.Chmod(n.target(), 0o777); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.wantMode(n.target(), 0o777, 0)
}

// Items: M01, M02.
func TestMemoryIsATmpfsOfItsSize(t *testing.T) {
	n := newNode(t, `{"medium": "Memory", "sizeLimit": "8Mi"}`)
	n.publish()
	n.wantMode(n.target(), 0o1777, 0)
	got := n.mounted()
	want := []string{"- tmpfs ", "nosuid", "nodev", "size=8192k"}
	if mount.New().Features()&mount.NoSwap != 0 {
		want = append(want, "noswap")
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("mount: got %s, want %q in it", got, w)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(n.target(), &st); err != nil || st.Blocks*uint64(st.Bsize) != 8<<20 {
		t.Errorf("size: got %d bytes, %v, want %d", st.Blocks*uint64(st.Bsize), err, 8<<20)
	}
	// Without the mount only root can write to the directory.
	if err := unix.Unmount(n.target(), 0); err != nil {
		t.Fatal(err)
	}
	n.wantMode(n.target(), 0o700, 0)
}

// Items: M03.
func TestHugePagesAreAHugetlbfs(t *testing.T) {
	for config, size := range map[string]int64{`{"medium": "HugePages"}`: 2 << 20, `{"medium": "HugePages-2Mi"}`: 2 << 20} {
		n := newNode(t, config)
		n.publish()
		n.publish()
		if got := n.mounted(); !strings.Contains(got, "- hugetlbfs ") {
			t.Errorf("%s: got mount %s, want a hugetlbfs", config, got)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(n.target(), &st); err != nil || int64(st.Bsize) != size {
			t.Errorf("%s: got pages of %d, %v, want %d", config, st.Bsize, err, size)
		}
		if st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
			t.Errorf("%s: got flags %#x, want nosuid, nodev", config, st.Flags)
		}
	}
}

// Items: M03.
func TestMountOfAnotherMediumIsAnErrorAndStays(t *testing.T) {
	n := newNode(t, `{"medium": "Memory"}`)
	n.publish()
	for _, other := range []string{`{}`, `{"medium": "HugePages-2Mi"}`} {
		n.volume.Spec.Config = json.RawMessage(other)
		if err := newDriver(n.layout).Publish(t.Context(), n.volume, pod); err == nil {
			t.Errorf("%s where a tmpfs is: got no error", other)
		}
	}
	if got := n.mounted(); !strings.Contains(got, "- tmpfs ") {
		t.Errorf("mount: got %s, want the tmpfs still", got)
	}
}

// Items: M03.
func TestHugePagesOfAnotherSizeAreAnError(t *testing.T) {
	n := newNode(t, `{"medium": "HugePages-2Mi"}`)
	n.publish()
	n.volume.Spec.Config = json.RawMessage(`{"medium": "HugePages-1Gi"}`)
	if err := newDriver(n.layout).Publish(t.Context(), n.volume, pod); err == nil || !strings.Contains(err.Error(), "1073741824") {
		t.Errorf("got %v, want an error that names the size", err)
	}
}

func TestMemoryLostWithARebootIsMadeAnew(t *testing.T) {
	n := newNode(t, `{"medium": "Memory"}`)
	n.fsGroup(4711)
	n.publish()
	if err := errors.Join(os.WriteFile(n.target()+"/f", nil, 0o600), unix.Unmount(n.target(), 0)); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.wantMode(n.target(), 0o3777, 4711)
	if entries, err := os.ReadDir(n.target()); err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v, want an empty volume", entries, err)
	}
}

func TestFSGroupIsSetOnce(t *testing.T) {
	n := newNode(t, `{}`)
	n.fsGroup(4711)
	n.publish()
	n.wantMode(n.target(), 0o2777, 4711)
	// From here on the modes belong to the pod.
	f := filepath.Join(n.target(), "f")
	if err := errors.Join(os.WriteFile(f, nil, 0o600), os.Chmod(f, 0o600), os.Chown(n.target(), -1, 1), os.Chmod(n.target(), 0o700)); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.wantMode(n.target(), 0o700, 1)
	n.wantMode(f, 0o600, 4711)
}

// A crash may come between any two steps of Publish; the next Publish finishes the
// work.
// Items: M04.
func TestPublishThatWasCutShortIsFinished(t *testing.T) {
	for name, undo := range map[string]func(n *node) error{
		"before the mark":     func(n *node) error { return os.RemoveAll(n.scratch()) },
		"before the group":    func(n *node) error { return errors.Join(os.RemoveAll(n.scratch()), os.Chown(n.target(), 0, 0)) },
		"before the mode":     func(n *node) error { return errors.Join(os.RemoveAll(n.scratch()), os.Chmod(n.target(), 0o700)) },
		"mark without volume": func(n *node) error { return os.RemoveAll(n.target()) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, `{}`)
			n.fsGroup(4711)
			n.publish()
			if err := undo(n); err != nil {
				t.Fatal(err)
			}
			n.publish()
			n.wantMode(n.target(), 0o2777, 4711)
		})
	}
}

// If the mark was lost, Publish does not walk the files of a volume that it already
// gave to the pod. It never touches a file that may belong to something else.
func TestLostMarkCostsNoFileItsMode(t *testing.T) {
	n := newNode(t, `{}`)
	n.fsGroup(4711)
	n.publish()
	own, linked := filepath.Join(n.target(), "own"), filepath.Join(n.target(), "linked")
	other := filepath.Join(n.layout.Root, "other")
	for _, f := range []string{own, other} {
		if err := errors.Join(os.WriteFile(f, nil, 0o600), os.Chown(f, 0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Link(other, linked), os.RemoveAll(n.scratch())); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.wantMode(own, 0o600, 0)
	if err := errors.Join(os.Chown(n.target(), 0, 0), os.RemoveAll(n.scratch())); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.wantMode(own, 0o660, 4711)
	n.wantMode(other, 0o600, 0)
}

func (n *node) scratch() string {
	return filepath.Join(n.layout.Pods(), string(pod), "plugins/kubernetes.io~empty-dir/scratch")
}

// Items: M01.
func TestMarkIsWhereTheKubeletHasIt(t *testing.T) {
	n := newNode(t, `{}`)
	n.publish()
	if st, err := os.Lstat(n.scratch() + "/ready"); err != nil || !st.Mode().IsRegular() {
		t.Errorf("ready: got %v, %v, want a file", st, err)
	}
}

func TestBadSourceIsRefusedByField(t *testing.T) {
	for config, want := range map[string]string{
		`{"medium": "Disk"}`:           "emptyDir.medium",
		`{"medium": "HugePages-"}`:     "emptyDir.medium",
		`{"medium": "HugePages-3Mi"}`:  "emptyDir.medium",
		`{"medium": "HugePages--2Mi"}`: "emptyDir.medium",
		`{"sizeLimit": "-1"}`:          "emptyDir.sizeLimit",
		`{"sizeLimit": "much"}`:        "emptyDir",
	} {
		n := newNode(t, config)
		err := newDriver(n.layout).Publish(t.Context(), n.volume, pod)
		e, ok := errors.AsType[*state.CallError](err)
		if !ok || e.Outcome != state.Refused || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "scratch") {
			t.Errorf("%s: got %v, want a refusal that names the volume and %s", config, err, want)
		}
		if entries, _ := os.ReadDir(n.layout.Root); slices.ContainsFunc(entries, func(e os.DirEntry) bool { return true }) {
			t.Errorf("%s: something was made", config)
		}
	}
}

// A pod that asks for a private directory, or for one like /tmp, gets it with any umask
// of the daemon and on every medium. If its fsGroup needs more bits, the mode has those
// too (KEP-5502).
//
// Items: Q01.
func TestDirectoryHasTheModeThatThePodAsksFor(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	for _, medium := range []string{"", "Memory", "HugePages-2Mi"} {
		for _, tc := range []struct {
			mode, want, withGroup uint32
		}{
			{0o700, 0o700, 0o2770},
			{0o1777, 0o1777, 0o3777},
			{0o750, 0o750, 0o2770},
			{0, 0, 0o2770},
			{0o777, 0o777, 0o2777},
		} {
			config := fmt.Sprintf(`{"medium": %q, "mode": %d}`, medium, tc.mode)
			n := newNode(t, config)
			n.publish()
			n.wantMode(n.target(), tc.want, 0)
			n = newNode(t, config)
			n.fsGroup(4711)
			n.publish()
			n.wantMode(n.target(), tc.withGroup, 4711)
		}
	}
	for _, bad := range []string{"-1", "1024", "2047"} {
		n := newNode(t, `{"mode": `+bad+`}`)
		if err := newDriver(n.layout).Publish(t.Context(), n.volume, pod); err == nil || !strings.Contains(err.Error(), "emptyDir.mode") {
			t.Errorf("mode %s: got %v", bad, err)
		}
	}
}

// A Publish that was interrupted before it set the mode sets it when repeated. A
// Publish that had finished leaves the mode that the pod has set since.
func TestModeIsSetOnceAndNeverAgain(t *testing.T) {
	n := newNode(t, `{"mode": 448}`)
	if err := os.MkdirAll(n.target(), 0o755); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.wantMode(n.target(), 0o700, 0)
	if err := os.Chmod(n.target(), 0o755); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.wantMode(n.target(), 0o755, 0)
}

// A volume in memory grows while its pod has files in it (KEP-6030) and keeps its
// flags. After a reboot it is made with its new size. No other medium grows.
func TestMemoryGrowsUnderItsFiles(t *testing.T) {
	n := newNode(t, `{"medium": "Memory", "sizeLimit": "4Mi"}`)
	n.volume.SizeBytes = 4 << 20
	n.publish()
	size := func() uint64 {
		t.Helper()
		var st unix.Statfs_t
		if err := unix.Statfs(n.target(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * uint64(st.Bsize)
	}
	file := filepath.Join(n.target(), "f")
	if err := os.WriteFile(file, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	before := n.mounted()
	if got, err := newDriver(n.layout).Expand(t.Context(), n.volume, pod, 16<<20); err != nil || got != 16<<20 || size() != 16<<20 {
		t.Errorf("got %d, %v, and the file system has %d bytes, want %d", got, err, size(), 16<<20)
	}
	if err := os.WriteFile(file, make([]byte, 8<<20), 0o600); err != nil {
		t.Errorf("more than it held before: %v", err)
	}
	if got := n.mounted(); got != strings.Replace(before, "size=4096k", "size=16384k", 1) {
		t.Errorf("mounted is %s, want %s with another size", got, before)
	}
	n.volume.SizeBytes = 16 << 20
	if err := unix.Unmount(n.target(), unix.MNT_DETACH); err != nil { // like a reboot
		t.Fatal(err)
	}
	n.publish()
	if size() != 16<<20 {
		t.Errorf("made anew it has %d bytes, want %d", size(), 16<<20)
	}
	if u, err := newDriver(n.layout).Usage(t.Context(), n.volume, pod); err != nil || u.Limit != 16<<20 {
		t.Errorf("usage: %+v, %v", u, err)
	}
	for _, config := range []string{`{}`, `{"medium": "HugePages-2Mi"}`} {
		n := newNode(t, config)
		n.publish()
		_, err := newDriver(n.layout).Expand(t.Context(), n.volume, pod, 1<<20)
		if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Final {
			t.Errorf("%s: got %v, want that it never will", config, err)
		}
	}
}
