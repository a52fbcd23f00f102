package subpath_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

// TestMain is also the helper that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "helper" {
		if err := isolate.Serve(context.Background(), subpath.Helper()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	drivertest.Main(m)
}

// newHelpers returns helper processes, or goroutines if command is nil.
func newHelpers(t *testing.T, command isolate.Command, s isolate.Service) *isolate.Pool {
	t.Helper()
	p := isolate.New(isolate.Config{Command: command, Service: s})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// process starts a helper that runs this test's own program.
func process() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "helper")
	cmd.Stderr = os.Stderr
	return cmd
}

const pod = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")

// node is a node's root with one pod and its volume, a directory.
type node struct {
	*testing.T
	layout  state.Layout
	binder  *subpath.Binder
	kernel  *mount.Kernel
	helpers *isolate.Pool
	volume  string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, layout: state.Layout{Root: t.TempDir()}}
	n.kernel, n.helpers = mount.New(n.layout.Root), newHelpers(t, process, subpath.Helper())
	n.binder = subpath.New(n.layout, n.kernel, n.helpers)
	n.volume = n.layout.BuiltinTarget("kubernetes.io/empty-dir", pod, "data")
	n.must(os.MkdirAll(n.volume, 0o750))
	n.must(os.Chmod(n.volume, 0o777))
	t.Cleanup(func() {
		if err := n.kernel.UnmountTree(context.WithoutCancel(t.Context()), n.layout.Root); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) request(path string) subpath.Request {
	return subpath.Request{
		Pod: pod, Volume: "data", Container: "app", Path: path, Root: subpath.Root{Path: n.volume},
	}
}

func (n *node) bind(path string) string {
	n.Helper()
	at, err := n.binder.Bind(n.Context(), n.request(path))
	n.must(err)
	return at
}

func (n *node) remove() {
	n.Helper()
	n.must(n.binder.Remove(n.Context(), pod, "data"))
}

func (n *node) stat(path string) unix.Stat_t {
	n.Helper()
	var st unix.Stat_t
	n.must(unix.Stat(path, &st))
	return st
}

// wantSame fails the test unless both paths are the same file or directory.
func (n *node) wantSame(at, want string) {
	n.Helper()
	a, b := n.stat(at), n.stat(want)
	if a.Dev != b.Dev || a.Ino != b.Ino {
		n.Errorf("%s is %d:%d, want %s, which is %d:%d", at, a.Dev, a.Ino, want, b.Dev, b.Ino)
	}
}

func (n *node) mounts() []string {
	n.Helper()
	found, err := n.kernel.List(n.Context(), n.layout.Root)
	n.must(err)
	var paths []string
	for _, m := range found {
		paths = append(paths, strings.TrimPrefix(m.Path, n.layout.Root+"/pods/"+string(pod)+"/"))
	}
	return paths
}

// Items: N01.
// Scenarios: U-146.
func TestWhatIsThereIsBound(t *testing.T) {
	n := newNode(t)
	n.must(os.MkdirAll(n.volume+"/d/e", 0o755))
	n.must(os.WriteFile(n.volume+"/d/f", []byte("file"), 0o644))
	for i, path := range []string{"d", "d/e", "d/f", "."} {
		r := n.request(path)
		r.Index = i
		at, err := n.binder.Bind(t.Context(), r)
		n.must(err)
		if want := fmt.Sprintf("%s/pods/%s/volume-subpaths/data/app/%d", n.layout.Root, pod, i); at != want {
			t.Errorf("%s: at %s, want %s", path, at, want)
		}
		n.wantSame(at, filepath.Join(n.volume, path))
	}
}

// Items: N01.
// Scenarios: U-145.
func TestWhatIsMissingIsMadeLikeTheVolumesRoot(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	n := newNode(t)
	n.must(os.Chown(n.volume, 1000, 2000))
	n.must(os.Chmod(n.volume, 0o770|os.ModeSetgid))
	n.must(os.Mkdir(n.volume+"/there", 0o700))
	at := n.bind("there/a/b")
	n.wantSame(at, n.volume+"/there/a/b")
	for _, p := range []string{"there/a", "there/a/b"} {
		st := n.stat(filepath.Join(n.volume, p))
		if st.Mode != unix.S_IFDIR|unix.S_ISGID|0o770 || st.Uid != 1000 || st.Gid != 2000 {
			t.Errorf("%s: mode %o of %d:%d, want 42770 of 1000:2000", p, st.Mode, st.Uid, st.Gid)
		}
	}
	if st := n.stat(n.volume + "/there"); st.Mode&0o777 != 0o700 || st.Uid != 0 {
		t.Errorf("what was there: mode %o of %d, want it as it was", st.Mode, st.Uid)
	}
}

// Items: N01.
// Scenarios: U-154.
func TestInAReadOnlyVolumeNothingIsMade(t *testing.T) {
	n := newNode(t)
	r := n.request("a/b")
	r.ReadOnly = true
	if _, err := n.binder.Bind(t.Context(), r); !errors.Is(err, subpath.ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
	if entries, err := os.ReadDir(n.volume); err != nil || len(entries) != 0 {
		t.Errorf("the volume has %v, %v, want nothing", entries, err)
	}
}

// Items: N04.
// Scenarios: U-151.
func TestAskedAgainTheMountStaysAndWhatWasRecreatedReplacesIt(t *testing.T) {
	n := newNode(t)
	at := n.bind("d")
	before, err := n.kernel.Look(t.Context(), at)
	n.must(err)
	n.binder = subpath.New(n.layout, n.kernel, n.helpers) // like a restart
	n.bind("d")
	after, err := n.kernel.Look(t.Context(), at)
	n.must(err)
	if before != after {
		t.Errorf("asked again: got %+v, want still %+v", after, before)
	}
	n.must(errors.Join(os.Rename(n.volume+"/d", n.volume+"/old"), os.WriteFile(n.volume+"/d", []byte("now a file"), 0o644)))
	n.wantSame(n.bind("d"), n.volume+"/d")
	if mounts := n.mounts(); len(mounts) != 1 {
		t.Errorf("mounts: %q, want one", mounts)
	}
	n.must(errors.Join(os.Remove(n.volume+"/d"), os.Mkdir(n.volume+"/d", 0o755)))
	n.wantSame(n.bind("d"), n.volume+"/d")
}

// Items: N05.
// Scenarios: U-150.
func TestRemoveLeavesTheDataAndNothingElse(t *testing.T) {
	n := newNode(t)
	n.must(os.WriteFile(n.volume+"/f", nil, 0o644))
	for i, path := range []string{"d", "d/e", "f"} {
		for _, container := range []string{"app", "side"} {
			r := n.request(path)
			r.Index, r.Container = i, container
			_, err := n.binder.Bind(t.Context(), r)
			n.must(err)
		}
	}
	other := n.request("d")
	other.Volume = "other"
	kept, err := n.binder.Bind(t.Context(), other)
	n.must(err)
	places, err := subpath.New(n.layout, n.kernel, n.helpers).Places() // like after a crash
	n.must(err)
	if want := []subpath.Place{{Pod: pod, Volume: "data"}, {Pod: pod, Volume: "other"}}; !slices.Equal(places, want) {
		t.Errorf("places: %v, want %v", places, want)
	}
	n.remove()
	n.remove() // removing nothing is no error
	if mounts := n.mounts(); !slices.Equal(mounts, []string{"volume-subpaths/other/app/0"}) {
		t.Errorf("mounts: %q, want the other volume's only", mounts)
	}
	n.wantSame(kept, n.volume+"/d")
	n.must(n.binder.Remove(t.Context(), pod, "other"))
	if entries, err := os.ReadDir(n.layout.Pods() + "/" + string(pod)); err != nil || len(entries) != 1 {
		t.Errorf("the pod's directory has %v, %v, want volumes only", entries, err)
	}
	for _, p := range []string{"f", "d/e"} {
		n.stat(filepath.Join(n.volume, p))
	}
}

// A container that mounts the whole volume deletes the directory or file of a subPath:
// the binder removes that bind like any other.
//
// Items: N05.
// Scenarios: U-156.
func TestWhatWasDeletedInTheVolumeIsUnmounted(t *testing.T) {
	n := newNode(t)
	n.must(os.WriteFile(n.volume+"/f", nil, 0o644))
	for i, path := range []string{"d/e", "f"} {
		r := n.request(path)
		r.Index = i
		_, err := n.binder.Bind(t.Context(), r)
		n.must(err)
	}
	n.must(errors.Join(os.RemoveAll(n.volume+"/d"), os.Remove(n.volume+"/f")))
	if mounts := n.mounts(); len(mounts) != 2 {
		t.Errorf("mounts: %q, want both binds", mounts)
	}
	n.remove()
	if entries, err := os.ReadDir(n.layout.Pods() + "/" + string(pod)); err != nil || len(entries) != 1 || len(n.mounts()) != 0 {
		t.Errorf("the pod's directory has %v, %v, and mounts %q", entries, err, n.mounts())
	}
}

// Items: N05.
func TestWhatIsInUseStaysAndIsRemovedLater(t *testing.T) {
	n := newNode(t)
	at := n.bind("d")
	f, err := os.Open(at)
	n.must(err)
	if err := n.binder.Remove(t.Context(), pod, "data"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("in use: got %v, want EBUSY", err)
	}
	n.wantSame(at, n.volume+"/d")
	n.must(f.Close())
	n.remove()
	if mounts := n.mounts(); len(mounts) != 0 {
		t.Errorf("mounts: %q", mounts)
	}
}

// TestMountsInTheVolumeAreNotEndedWithItsSubpaths: if the node's mounts are shared, a
// mount in a volume appears below its subpaths, too.
// Items: N05.
func TestMountsInTheVolumeAreNotEndedWithItsSubpaths(t *testing.T) {
	n := newNode(t)
	n.must(unix.Mount(n.layout.Root, n.layout.Root, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(n.layout.Root, unix.MNT_DETACH) })
	n.must(unix.Mount("", n.layout.Root, "", unix.MS_SHARED, ""))
	at := n.bind("d")
	n.must(os.Mkdir(n.volume+"/d/nested", 0o755))
	n.must(unix.Mount("nested", n.volume+"/d/nested", "tmpfs", 0, ""))
	n.wantSame(at+"/nested", n.volume+"/d/nested")
	n.remove()
	if seen, err := n.kernel.Look(t.Context(), n.volume+"/d/nested"); err != nil || !seen.Mounted {
		t.Errorf("the mount in the volume: %+v, %v, want it mounted still", seen, err)
	}
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	n := newNode(t)
	for _, bad := range []string{"", ".", "..", "../x", "a/b", "a\x00b", strings.Repeat("x", 256)} {
		for what, change := range map[string]func(*subpath.Request){
			"pod":       func(r *subpath.Request) { r.Pod = state.PodUID(bad) },
			"volume":    func(r *subpath.Request) { r.Volume = bad },
			"container": func(r *subpath.Request) { r.Container = bad },
		} {
			r := n.request("d")
			change(&r)
			if _, err := n.binder.Bind(t.Context(), r); err == nil {
				t.Errorf("%s %.8q: got no error", what, bad)
			}
		}
		if err := n.binder.Remove(t.Context(), state.PodUID(bad), "data"); err == nil {
			t.Errorf("remove for pod %.8q: got no error", bad)
		}
	}
	if mounts := n.mounts(); len(mounts) != 0 {
		t.Errorf("mounts: %q", mounts)
	}
}

// TestAVolumeThatHangsHoldsUpItselfOnly (rule 9).
func TestAVolumeThatHangsHoldsUpItselfOnly(t *testing.T) {
	n := newNode(t)
	hang, begun := make(chan struct{}), make(chan struct{}, 2)
	service := subpath.Helper()
	for name, call := range service.Handlers {
		service.Handlers[name] = func(ctx context.Context, request []byte) ([]byte, error) {
			if bytes.Contains(request, []byte(`"volume":"data"`)) {
				begun <- struct{}{}
				<-hang
			}
			return call(ctx, request)
		}
	}
	n.binder = subpath.New(n.layout, n.kernel, newHelpers(t, nil, service))
	ctx, cancel := context.WithCancel(t.Context())
	inside := make(chan error, 1)
	go func() { _, err := n.binder.Bind(ctx, n.request("d")); inside <- err }()
	<-begun
	cancel()
	if err := <-inside; !errors.Is(err, context.Canceled) {
		t.Errorf("the hung one: %v, want context.Canceled", err)
	}
	// A bind in the making is not visible yet; Remove must not conclude that there is
	// none.
	waits, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := n.binder.Remove(waits, pod, "pv", "data"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("removing what is being bound: %v, want that it waits", err)
	}
	other := n.request("d")
	other.Volume = "other"
	_, err := n.binder.Bind(t.Context(), other)
	n.must(err)
	close(hang)
	n.wantSame(n.bind("d"), n.volume+"/d") // waits for the abandoned bind
}

// With the options, the kernel keeps a container from running programs, opening devices
// and gaining another user below the mount, of a part or of the whole volume. The
// volume itself is unchanged. A mount of an earlier request gets the options too.
func TestMountsHaveTheOptionsThatTheContainerAsksFor(t *testing.T) {
	n := newNode(t)
	n.must(os.Mkdir(n.volume+"/d", 0o755))
	flags := func(path string) uint64 {
		t.Helper()
		var st unix.Statfs_t
		n.must(unix.Statfs(path, &st))
		return uint64(st.Flags) & (unix.ST_NOEXEC | unix.ST_NODEV | unix.ST_NOSUID)
	}
	before := flags(n.volume)
	n.bind("d") // without options
	for i, r := range []subpath.Request{n.request("d"), n.request("d"), n.request("")} {
		r.Index, r.Whole = i, i == 2
		r.NoExec, r.NoDev, r.NoSuid = true, i > 0, i > 0
		want := before | unix.ST_NOEXEC
		if i > 0 {
			want |= unix.ST_NODEV | unix.ST_NOSUID
		}
		at, err := n.binder.Bind(t.Context(), r)
		n.must(err)
		if got := flags(at); got != want {
			t.Errorf("%+v: flags %#x, want %#x", r, got, want)
		}
	}
	if got := flags(n.volume); got != before {
		t.Errorf("the volume has flags %#x now, want %#x as before", got, before)
	}
}

// What an earlier version bound is a peer of the volume, or of a whole hostPath a private copy. At the container's next
// start it is bound anew as a slave, also over one that a process still uses; and all of them go with the volume.
func TestMountsOfAnEarlierVersionAreBoundAnewAndGo(t *testing.T) {
	for _, used := range []bool{false, true} {
		n := newNode(t)
		n.must(unix.Mount(n.layout.Root, n.layout.Root, "", unix.MS_BIND, ""))
		n.must(unix.Mount("", n.layout.Root, "", unix.MS_SHARED, ""))
		n.must(unix.Mount("x", n.volume, "tmpfs", 0, ""))
		n.must(os.MkdirAll(n.volume+"/d/below", 0o755))
		for index, earlier := range []uintptr{unix.MS_SHARED, unix.MS_PRIVATE} {
			r := n.request("d")
			r.Index = index
			at, err := n.binder.Bind(n.Context(), r)
			n.must(err)
			n.must(unix.Unmount(at, 0))
			n.must(unix.Mount(n.volume+"/d", at, "", unix.MS_BIND, ""))
			n.must(unix.Mount("", at, "", earlier, ""))
			var user *os.File
			if used {
				user, err = os.Open(at)
				n.must(err)
			}
			again, err := n.binder.Bind(n.Context(), r)
			n.must(err)
			n.wantSame(again, n.volume+"/d")
			n.must(unix.Mount("x", n.volume+"/d/below", "tmpfs", 0, ""))
			n.wantSame(at+"/below", n.volume+"/d/below")
			n.must(unix.Unmount(n.volume+"/d/below", 0))
			n.must(unix.Mount("x", at+"/below", "tmpfs", 0, ""))
			if seen, err := n.kernel.Look(n.Context(), n.volume+"/d/below"); err != nil || seen.Mounted {
				n.Errorf("what is mounted in the part is in the volume: %+v, %v", seen, err)
			}
			n.must(unix.Unmount(at+"/below", 0))
			if used {
				n.must(user.Close())
			}
		}
		n.remove()
		if left := n.mounts(); len(left) != 2 { // the root and the volume
			n.Errorf("left: %q", left)
		}
	}
}
