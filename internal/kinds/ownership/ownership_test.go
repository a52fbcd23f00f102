package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/ownership"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

const gid = 4711

func TestMain(m *testing.M) { drivertest.Main(m) }

// tree makes the named files in a new directory. A name that ends in / is a directory,
// one with -> a symbolic link.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		var err error
		if link, to, ok := strings.Cut(name, " -> "); ok {
			err = os.Symlink(to, filepath.Join(dir, link))
		} else if strings.HasSuffix(name, "/") {
			err = errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o700))
		} else {
			err = errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func apply(t *testing.T, ctx context.Context, dir string, o ownership.Options) error {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return ownership.Apply(ctx, f, o)
}

// see returns mode and group of path, such as "0640 4711".
func see(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("lstat %s: %v", path, err)
	}
	return fmt.Sprintf("%04o %d", st.Mode&0o7777, st.Gid)
}

func want(t *testing.T, path, want string) {
	t.Helper()
	if got := see(t, path); got != want {
		t.Errorf("%s: got %s, want %s", path, got, want)
	}
}

// Items: G01, G08.
func TestGroupGetsWriteAccessAndDirectoriesHandItDown(t *testing.T) {
	dir := tree(t, "f", "d/", "d/f", "d/e/", "d/x", "l -> /etc/passwd")
	if err := os.Chmod(filepath.Join(dir, "d/x"), 0o4711|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	passwd := see(t, "/etc/passwd")
	if err := apply(t, t.Context(), dir, ownership.Options{GID: gid}); err != nil {
		t.Fatal(err)
	}
	want(t, dir, "2775 4711")
	want(t, filepath.Join(dir, "f"), "0660 4711")
	want(t, filepath.Join(dir, "d"), "2770 4711")
	want(t, filepath.Join(dir, "d/f"), "0660 4711")
	want(t, filepath.Join(dir, "d/e"), "2770 4711")
	want(t, filepath.Join(dir, "d/x"), "4771 4711")
	want(t, filepath.Join(dir, "l"), "0777 4711")
	want(t, "/etc/passwd", passwd)
}

func TestReadOnlyVolumeGivesReadAccessOnly(t *testing.T) {
	dir := tree(t, "f", "d/")
	if err := apply(t, t.Context(), dir, ownership.Options{GID: gid, ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	want(t, filepath.Join(dir, "f"), "0640 4711")
	want(t, filepath.Join(dir, "d"), "2750 4711")
}

// Items: G07.
func TestOnRootMismatchWalksOnlyWhereRootDiffers(t *testing.T) {
	for name, spoil := range map[string]func(root string) error{
		"group":   func(root string) error { return os.Chown(root, -1, gid+1) },
		"bits":    func(root string) error { return os.Chmod(root, 0o700|os.ModeSetgid) },
		"setgid":  func(root string) error { return os.Chmod(root, 0o775) },
		"nothing": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, "f")
			if err := apply(t, t.Context(), dir, ownership.Options{GID: gid}); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Chmod(filepath.Join(dir, "f"), 0o600), spoil(dir)); err != nil {
				t.Fatal(err)
			}
			if err := apply(t, t.Context(), dir, ownership.Options{GID: gid, OnRootMismatch: true}); err != nil {
				t.Fatal(err)
			}
			if name == "nothing" {
				want(t, filepath.Join(dir, "f"), "0600 4711")
			} else {
				want(t, filepath.Join(dir, "f"), "0660 4711")
			}
		})
	}
}

// C20: a file system that is mounted in the volume.
// Attacks: C20.
func TestAttackNoMountIsCrossed(t *testing.T) {
	dir, other := tree(t, "m/", "f"), tree(t, "f")
	if err := unix.Mount(other, filepath.Join(dir, "m"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(filepath.Join(dir, "m"), unix.MNT_DETACH) })
	before := see(t, other)
	if err := apply(t, t.Context(), dir, ownership.Options{GID: gid}); err != nil {
		t.Fatal(err)
	}
	want(t, filepath.Join(dir, "f"), "0660 4711")
	want(t, other, before)
	want(t, filepath.Join(other, "f"), "0600 0")
}

// C20: a hard link to a file that is not the pod's.
// Attacks: C20.
func TestAttackLinkedFilesAreLeftAloneIfAsked(t *testing.T) {
	dir := tree(t, "f", "g")
	canary := filepath.Join(t.TempDir(), "canary")
	if err := errors.Join(os.WriteFile(canary, nil, 0o600), os.Link(canary, filepath.Join(dir, "linked"))); err != nil {
		t.Fatal(err)
	}
	if err := apply(t, t.Context(), dir, ownership.Options{GID: gid, SkipLinked: true}); err != nil {
		t.Fatal(err)
	}
	want(t, canary, "0600 0")
	want(t, filepath.Join(dir, "g"), "0660 4711")
	if err := apply(t, t.Context(), dir, ownership.Options{GID: gid}); err != nil {
		t.Fatal(err)
	}
	want(t, canary, "0660 4711")
}

func TestCancelEndsTheWalkBeforeTheRoot(t *testing.T) {
	dir := tree(t, "f")
	why := errors.New("pod deleted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := apply(t, ctx, dir, ownership.Options{GID: gid}); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause of the context", err)
	}
	want(t, dir, "0755 0")
}

func TestFailuresAreReportedAndDoNotStopTheWalk(t *testing.T) {
	dir := tree(t, "a", "b", "c")
	immutable(t, filepath.Join(dir, "b"))
	err := apply(t, t.Context(), dir, ownership.Options{GID: gid})
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), " b:") {
		t.Errorf("got %v, want EPERM for b", err)
	}
	want(t, filepath.Join(dir, "a"), "0660 4711")
	want(t, filepath.Join(dir, "c"), "0660 4711")
}

// immutable makes path immutable until the test ends.
func immutable(t *testing.T, path string) {
	t.Helper()
	const flag = 0x10 // FS_IMMUTABLE_FL
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	set := func(v int) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, v) }
	if err := set(flag); err != nil {
		t.Fatalf("make %s immutable: %v", path, err)
	}
	t.Cleanup(func() { set(0); f.Close() })
}

// If another program removes a file during the walk, the walk does not fail.
func TestADirectoryThatGoesDuringTheWalkIsNoFailure(t *testing.T) {
	at := filepath.Join(tree(t, "gone/"), "gone")
	dir, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if err := ownership.Apply(t.Context(), dir, ownership.Options{GID: 4711}); err != nil {
		t.Error(err)
	}
}

func TestImpossibleGroupIsRefused(t *testing.T) {
	for _, id := range []int64{-1, 1<<32 - 1, 1 << 40} {
		if err := apply(t, t.Context(), tree(t), ownership.Options{GID: id}); err == nil {
			t.Errorf("group %d: got no error", id)
		}
	}
}

func TestTreeThatIsTooDeepIsReported(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 600 {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_RDONLY, 0)
		unix.Close(fd)
		if fd = next; err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(fd)
	if err := apply(t, t.Context(), dir, ownership.Options{GID: gid}); !errors.Is(err, unix.ELOOP) {
		t.Errorf("got %v, want ELOOP", err)
	}
}

// C20: while the walk runs, a writer in the volume swaps a directory
// and a file with symbolic links that lead out of it.
// Items: G08.
// Attacks: C20.
func TestAttackSwappedLinksLeadNowhere(t *testing.T) {
	canary := tree(t, "f", "d/", "d/f")
	dir := tree(t, "d/", "d/f", "evil -> "+canary, "f", "evilf -> "+filepath.Join(canary, "f"))
	root, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				unix.Renameat2(root, "d", root, "evil", unix.RENAME_EXCHANGE)
				unix.Renameat2(root, "f", root, "evilf", unix.RENAME_EXCHANGE)
			}
		}
	})
	for i := range 2000 {
		if err := apply(t, t.Context(), dir, ownership.Options{GID: int64(gid + i)}); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wg.Wait()
	for _, p := range []string{"f", "d/f"} {
		want(t, filepath.Join(canary, p), "0600 0")
	}
	want(t, canary, "0755 0")
	want(t, filepath.Join(canary, "d"), "0700 0")
}

// A failure that another attempt may mend, such as too many open files: the root does not
// look complete, and the error hides no such failure behind one that will stay.
func TestRootStaysUntilAnotherAttemptCannotMendMore(t *testing.T) {
	dir := tree(t, "a/", "a/b/", "a/b/c/", "a/b/c/f", "immutable")
	immutable(t, filepath.Join(dir, "immutable"))
	o := ownership.Options{GID: gid, OnRootMismatch: true}
	err := withFewFiles(t, func() error { return apply(t, t.Context(), dir, o) })
	if !errors.Is(err, unix.EMFILE) || errors.Is(err, unix.EPERM) {
		t.Errorf("got %v, want EMFILE alone", err)
	}
	want(t, dir, "0755 0")
	if err := apply(t, t.Context(), dir, o); !errors.Is(err, unix.EPERM) {
		t.Errorf("again: got %v, want EPERM", err)
	}
	want(t, filepath.Join(dir, "a/b/c/f"), "0660 4711")
	want(t, dir, "2775 4711")
}

// withFewFiles calls f while this process may open four more files.
func withFewFiles(t *testing.T, f func() error) error {
	t.Helper()
	next, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(next)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + 4, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err = f()
	return errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
}
