package fsgroup

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// publishes is a driver whose Publish returns err.
type publishes struct {
	manager.Driver
	err error
}

func (p publishes) Publish(context.Context, state.Volume, state.PodUID) (time.Time, error) {
	return time.Time{}, p.err
}

// target makes a directory with a file, mounted at pods/a/mount of a root, and
// returns the root and a record of the mount.
func target(t *testing.T) (root *os.File, v state.Volume) {
	t.Helper()
	dir := t.TempDir()
	data, mounted := filepath.Join(dir, "data"), filepath.Join(dir, "pods/a/mount")
	for _, d := range []string{data, mounted} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(data, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(data, mounted, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(mounted, unix.MNT_DETACH) })
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	group := int64(2000)
	return root, state.Volume{ID: "d^h", Mounts: map[state.PodUID]state.Mount{"a": {
		Fact:      state.Fact{Phase: state.Entering},
		MountSpec: state.MountSpec{Target: mounted, FSGroup: &group, Ownership: state.OwnAlways},
	}}}
}

func gidOf(t *testing.T, root *os.File) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(root.Name(), "data/f"), &st); err != nil {
		t.Fatal(err)
	}
	return st.Gid
}

// G01, G05, F18: the files are given to the group after the first publication, if the mount
// says so and the driver does not do it.
//
// Items: N-45.
func TestPublishedFilesAreGivenToTheGroup(t *testing.T) {
	failed := errors.New("no")
	for name, tc := range map[string]struct {
		driver Driver
		change func(*state.Mount)
		gid    uint32
		err    error
	}{
		"given":           {Driver{}, func(*state.Mount) {}, 2000, nil},
		"not asked for":   {Driver{}, func(m *state.Mount) { m.Ownership = "" }, 0, nil},
		"renewed":         {Driver{}, func(m *state.Mount) { m.Phase = state.Present }, 0, nil},
		"the driver does": {Driver{Config: Config{Groups: true}}, func(*state.Mount) {}, 0, nil},
		"not published":   {Driver{Driver: publishes{err: failed}}, func(*state.Mount) {}, 0, failed},
	} {
		root, v := target(t)
		m := v.Mounts["a"]
		tc.change(&m)
		v.Mounts["a"] = m
		tc.driver.Root, tc.driver.Logger = root, slog.New(slog.DiscardHandler)
		if tc.driver.Driver == nil {
			tc.driver.Driver = publishes{}
		}
		if _, err := tc.driver.Publish(t.Context(), v, "a"); !errors.Is(err, tc.err) || gidOf(t, root) != tc.gid {
			t.Errorf("%s: %v, the file's group is %d, want %d", name, err, gidOf(t, root), tc.gid)
		}
	}
}

// Rules 4 and 8: if a driver leaves a link at the target or above it, nothing behind the
// link is given away; nor is a directory that is no mount.
func TestNothingElseIsGivenAway(t *testing.T) {
	root, v := target(t)
	m := v.Mounts["a"]
	d := Driver{publishes{}, Config{Root: root, Logger: slog.New(slog.DiscardHandler)}}
	for _, link := range []string{"link", "dir/mount"} {
		path := filepath.Join(root.Name(), link)
		from, to := path, m.Target
		if link == "dir/mount" {
			from, to = filepath.Dir(path), filepath.Dir(m.Target)
		}
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
		m.Target = path
		v.Mounts["a"] = m
		if _, err := d.Publish(t.Context(), v, "a"); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: %v", link, err)
		}
		m.Target = filepath.Join(root.Name(), "pods/a/mount")
	}
	m.Target = filepath.Join(root.Name(), "data")
	v.Mounts["a"] = m
	if _, err := d.Publish(t.Context(), v, "a"); err != nil {
		t.Errorf("no mount: %v", err)
	}
	m.Target = filepath.Dir(root.Name()) // above the root
	v.Mounts["a"] = m
	if _, err := d.Publish(t.Context(), v, "a"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("outside of the root: %v", err)
	}
	if got := gidOf(t, root); got != 0 {
		t.Errorf("a file was given to group %d", got)
	}
}

// G10: an interrupted walk leaves the volume uncertain, so that it is repeated or undone; a
// file system that does not allow the change does not keep the pod waiting.
// Items: G10.
func TestWalkThatEndsIsRepeated(t *testing.T) {
	root, v := target(t)
	d := Driver{publishes{}, Config{Root: root, Logger: slog.New(slog.DiscardHandler)}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Publish(ctx, v, "a")
	if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Uncertain || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := unix.Mount("", v.Mounts["a"].Target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Publish(t.Context(), v, "a"); !isPartly(err) || !errors.Is(err, unix.EROFS) || gidOf(t, root) != 0 {
		t.Errorf("read-only: %v, group %d", err, gidOf(t, root))
	}
}

// isPartly reports whether err comes with a volume that is mounted but for its group.
func isPartly(err error) bool {
	e, ok := errors.AsType[*state.CallError](err)
	return ok && e.Outcome == state.Partly
}

// Where a server squashes root, root may not enter another user's directory (EACCES). As with EPERM, the pod gets its
// volume, the other files their group, and the error says which directory has not.
func TestRootThatIsSquashedGivesWhatItMay(t *testing.T) {
	root, v := target(t)
	closed := filepath.Join(root.Name(), "data/closed")
	if err := errors.Join(os.Mkdir(closed, 0o700), os.Chown(closed, 1234, 1234)); err != nil {
		t.Fatal(err)
	}
	d := Driver{publishes{}, Config{Root: root, Logger: slog.New(slog.DiscardHandler)}}
	published := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := squashRoot(); err != nil {
			published <- err
			return
		}
		_, err := d.Publish(t.Context(), v, "a")
		published <- err
	}()
	err := <-published
	if !isPartly(err) || !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "open closed") {
		t.Errorf("got %v", err)
	}
	if got := gidOf(t, root); got != 2000 {
		t.Errorf("the other file's group is %d", got)
	}
	var st unix.Stat_t // the root directory, too: another attempt would get no further
	if err := unix.Stat(filepath.Join(root.Name(), "data"), &st); err != nil || st.Gid != 2000 {
		t.Errorf("the root directory's group is %d, %v", st.Gid, err)
	}
}

// squashRoot makes this thread subject to the permissions of files, as root is at a server that squashes it.
func squashRoot() error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&h, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	return unix.Capset(&h, &data[0])
}

// A walk reports its progress every second, and when it ends.
//
// Items: G09.
func TestHowFarAWalkIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int64
		var files atomic.Int64
		end := reportEvery(isolate.WithProgress(t.Context(), func(n int64) { told = append(told, n) }), &files)
		for range 3 {
			files.Add(1000)
			time.Sleep(progressPause)
			synctest.Wait()
		}
		files.Add(7)
		end()
		if !slices.Equal(told, []int64{1000, 2000, 3000, 3007}) {
			t.Errorf("told %v", told)
		}
	})
}

// A walk counts the files and directories that it has checked, also in a helper, and the
// status of the volume shows the count.
//
// Items: G09.
func TestAWalkSaysHowManyFilesItHasLookedAt(t *testing.T) {
	for name, helpers := range map[string]*isolate.Pool{"here": nil, "in a helper": isolate.New(isolate.Config{Service: Helper()})} {
		root, v := target(t)
		for i := range 20 {
			if err := os.WriteFile(filepath.Join(root.Name(), "data", strconv.Itoa(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var told []string
		d := Driver{publishes{}, Config{Root: root, Helpers: helpers, Logger: slog.New(slog.DiscardHandler), Progress: func(id state.VolumeID, text string) {
			told = append(told, string(id)+": "+text)
		}}}
		if _, err := d.Publish(t.Context(), v, "a"); err != nil || gidOf(t, root) != 2000 {
			t.Fatalf("%s: %v, group %d", name, err, gidOf(t, root))
		}
		// 21 files and the root directory.
		if len(told) == 0 || told[len(told)-1] != "d^h: 22 files and directories checked for the pod's fsGroup 2000 so far" {
			t.Errorf("%s: told %q", name, told)
		}
		if helpers != nil {
			if err := helpers.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A helper gives a volume's files to the pod's group, and its failure is the same error as here.
func TestHelperGivesFilesToTheGroup(t *testing.T) {
	root, v := target(t)
	d := Driver{publishes{}, Config{Root: root, Helpers: newHelpers(t), Logger: slog.New(slog.DiscardHandler)}}
	if _, err := d.Publish(t.Context(), v, "a"); err != nil || gidOf(t, root) == 0 {
		t.Errorf("publish: %v, group %d", err, gidOf(t, root))
	}
	path := filepath.Join(root.Name(), "pods/a/mount")
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(root.Name(), "data/f"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Publish(t.Context(), v, "a"); !isPartly(err) || gidOf(t, root) != 0 {
		t.Errorf("read-only: %v, group %d; a file system that cannot is no failure", err, gidOf(t, root))
	}
}
