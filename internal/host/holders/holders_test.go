package holders

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

const heldVariable = "HOLDERS_TEST_HOLD"

func TestMain(m *testing.M) {
	if what := os.Getenv(heldVariable); what != "" {
		hold(what)
		return
	}
	drivertest.Enter()
	goleak.VerifyTestMain(m)
}

// hold is a process that uses a file system in the way asked for, unmounts lazily what is named
// after it, says so, and ends when its standard input does.
func hold(what string) {
	kind, path, _ := strings.Cut(what, ":")
	path, lazily, _ := strings.Cut(path, "|")
	var err error
	switch kind {
	case "cwd":
		err = os.Chdir(path)
	case "root":
		err = unix.Chroot(path)
	case "fd":
		_, err = unix.Open(path, unix.O_RDONLY, 0)
	case "path":
		_, err = unix.Open(path, unix.O_PATH, 0)
	case "gone":
		if _, err = unix.Open(path, unix.O_RDWR|unix.O_CREAT, 0o600); err == nil {
			err = os.Remove(path)
		}
	case "map":
		var f *os.File
		if f, err = os.Open(path); err == nil {
			_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
			_ = f.Close()
		}
	}
	if kind == "third" {
		err, lazily = third(path, lazily), ""
	}
	for p := range strings.SplitSeq(lazily, "|") {
		if p != "" && err == nil {
			err = unix.Unmount(p, unix.MNT_DETACH)
		}
	}
	fmt.Println("ready", err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// third mounts a directory, and starts a process in another namespace, which lacks that mount and has two files of it:
// one that is deleted, and one below deep if there is one. It notes the process's id beside the mount point.
func third(dir, at string) error {
	if err := unix.Mount(dir, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	gone, err := os.Create(at + "/gone")
	if err != nil {
		return err
	}
	files := []*os.File{gone}
	if deep, err := os.Open(at + "/deep/file"); err == nil {
		files = append(files, deep)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), heldVariable+"=nothing:|"+at)
	cmd.ExtraFiles, cmd.Stdin = files, os.Stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, os.Remove(gone.Name()), cmd.Start()); err != nil {
		return err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready <nil>\n" {
		return fmt.Errorf("the process in the third namespace says %q, %w", line, err)
	}
	return os.WriteFile(at+".pid", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}

// holder starts such a process and returns its id. own gives it a mount namespace of its
// own, which has a copy of every mount.
func holder(t *testing.T, what string, own bool) int {
	t.Helper()
	return run(t, "/proc/self/exe", what, own)
}

// run is holder with a copy of this program.
func run(t *testing.T, program, what string, own bool) int {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), heldVariable+"="+what)
	if own {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the process that holds %s: %v", what, err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready <nil>\n" {
		t.Fatalf("the process that is to hold %s says %q, %v", what, line, err)
	}
	return cmd.Process.Pid
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// volume returns a fresh mount with a file in it.
func volume(t *testing.T) (dir, file string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "a b") // the mount table escapes this name
	must(t, os.Mkdir(dir, 0o755))
	must(t, unix.Mount("vol", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	file = filepath.Join(dir, "file")
	must(t, os.WriteFile(file, make([]byte, 4096), 0o644))
	return dir, file
}

func find(t *testing.T, q Query) Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := (&Finder{Patience: time.Minute}).Find(ctx, q) // enough on a busy machine
	must(t, err)
	return r
}

// usesOf returns the ways in which the report says that a process uses the volume.
func usesOf(r Report, pid int) []string {
	var uses []string
	for _, p := range r.Processes {
		if p.PID == pid {
			for _, u := range p.Uses {
				uses = append(uses, u.Kind+" "+u.Path)
			}
		}
	}
	return uses
}

func TestEveryWayToHoldAMountIsFound(t *testing.T) {
	dir, file := volume(t)
	must(t, os.WriteFile(filepath.Join(dir, "exe"), nil, 0o755))
	for _, tt := range []struct{ what, want string }{
		{"cwd:" + dir, "cwd " + dir},
		{"root:" + dir, "root " + dir},
		{"fd:" + file, "fd " + file},
		{"path:" + dir, "fd " + dir},
		{"map:" + file, "map " + file},
	} {
		pid := holder(t, tt.what, false)
		r := find(t, Query{Paths: []string{dir}})
		uses := usesOf(r, pid)
		if !slices.Contains(uses, tt.want) {
			t.Errorf("%s: uses %q, want %q", tt.what, uses, tt.want)
		}
		if !r.Held() || !slices.Contains(r.Mounts, dir) {
			t.Errorf("%s: report %+v", tt.what, r)
		}
	}
}

func TestWhoUsesSomethingElseIsNotNamed(t *testing.T) {
	dir, _ := volume(t)
	other, otherFile := volume(t)
	beside := dir + "x" // a path that only shares its prefix with the mount's
	must(t, os.Mkdir(beside, 0o755))
	above := filepath.Join(dir, "sub")
	must(t, os.Mkdir(above, 0o755))
	must(t, unix.Mount("over", above, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(above, unix.MNT_DETACH) })
	for _, what := range []string{"cwd:" + other, "fd:" + otherFile, "cwd:" + beside, "cwd:" + filepath.Dir(dir), "cwd:" + above} {
		pid := holder(t, what, false)
		if uses := usesOf(find(t, Query{Paths: []string{dir}}), pid); len(uses) > 0 {
			t.Errorf("%s is said to use %s: %q", what, dir, uses)
		}
	}
}

// A file opened before its directory was covered by a mount counts for the lower mount.
func TestAFileUnderAnotherMountIsOnItsOwn(t *testing.T) {
	dir, file := volume(t)
	pid := holder(t, "fd:"+file, false)
	inner := filepath.Join(dir, "inner")
	must(t, os.Mkdir(inner, 0o755))
	innerFile := filepath.Join(inner, "f")
	must(t, os.WriteFile(innerFile, nil, 0o644))
	lower := holder(t, "fd:"+innerFile, false)
	must(t, unix.Mount("over", inner, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(inner, unix.MNT_DETACH) })
	if uses := usesOf(find(t, Query{Paths: []string{inner}}), lower); len(uses) > 0 {
		t.Errorf("what is mounted over it is said to be in use: %q", uses)
	}
	r := find(t, Query{Paths: []string{dir}})
	if usesOf(r, pid) == nil || usesOf(r, lower) == nil {
		t.Errorf("the lower mount is said to be used by %+v", r.Processes)
	}
}

func TestACopyInAnotherNamespaceIsFound(t *testing.T) {
	dir, file := volume(t)
	sub := filepath.Join(dir, "sub")
	must(t, os.Mkdir(sub, 0o755))
	pid := holder(t, "fd:/proc/self/status", true)
	user := holder(t, "fd:"+file, true)
	must(t, unix.Unmount(dir, 0)) // in this namespace; the copies stay
	must(t, unix.Mount("vol", dir, "tmpfs", 0, ""))
	r := find(t, Query{Paths: []string{dir}})
	if len(r.Namespaces) > 0 {
		t.Errorf("another file system at the same path is taken for a copy: %+v", r.Namespaces)
	}
	must(t, unix.Unmount(dir, 0))

	dir2, _ := volume(t)
	pid2 := holder(t, "fd:/proc/self/status", true)
	r = find(t, Query{Paths: []string{dir2}})
	if len(r.Namespaces) != 1 || r.Namespaces[0].PID != pid2 || !slices.Equal(r.Namespaces[0].Mounts, []string{dir2}) {
		t.Errorf("namespaces %+v, want that of %d (not of %d and %d)", r.Namespaces, pid2, pid, user)
	}
	if usesOf(r, pid2) != nil {
		t.Errorf("who has no file open is said to use it: %+v", r.Processes)
	}
	inside := holder(t, "cwd:"+dir2, true)
	if uses := usesOf(find(t, Query{Paths: []string{dir2}}), inside); !slices.Equal(uses, []string{"cwd " + dir2}) {
		t.Errorf("a process in another namespace uses %q", uses)
	}
}

func TestAChrootedProcessIsRead(t *testing.T) {
	dir, _ := volume(t)
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	pid := holder(t, "root:"+filepath.Join(dir, "d"), false)
	uses := usesOf(find(t, Query{Paths: []string{dir}}), pid)
	if !slices.Contains(uses, "root "+filepath.Join(dir, "d")) {
		t.Errorf("uses %q", uses)
	}
}

// frozen mounts a FUSE file system whose daemon never answers: a caller that asks it
// anything waits for ever.
func frozen(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Mount("frozen", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
	t.Cleanup(func() {
		_ = unix.Close(fd) // the calls that wait fail
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	return dir
}

func TestAFrozenMountDoesNotHangTheSearch(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("this kernel has no FUSE")
	}
	dir := frozen(t)
	pid := holder(t, "path:"+dir, false)
	r := find(t, Query{Paths: []string{dir}})
	if !slices.Equal(usesOf(r, pid), []string{"fd " + dir}) {
		t.Errorf("uses %q", usesOf(r, pid))
	}
}

func TestADirectoryThatIsNoMountHasHolders(t *testing.T) {
	dir, _ := volume(t)
	sub, other := filepath.Join(dir, "sub"), filepath.Join(dir, "other")
	must(t, os.Mkdir(sub, 0o755))
	must(t, os.Mkdir(other, 0o755))
	in, out := holder(t, "cwd:"+sub, false), holder(t, "cwd:"+other, false)
	r := find(t, Query{Paths: []string{sub}})
	if usesOf(r, in) == nil || usesOf(r, out) != nil {
		t.Errorf("processes %+v, want %d and not %d", r.Processes, in, out)
	}
	bind := t.TempDir()
	must(t, unix.Mount(sub, bind, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(bind, unix.MNT_DETACH) })
	if r := find(t, Query{Paths: []string{sub}}); !slices.Contains(r.Mounts, bind) || slices.Contains(r.Mounts, dir) {
		t.Errorf("mounts %q, want the bind and not the whole", r.Mounts)
	}
}

func TestASearchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := new(Finder).Find(ctx, Query{Paths: []string{"/"}}); err == nil {
		t.Error("no error")
	}
	if _, err := new(Finder).Find(t.Context(), Query{Paths: []string{"relative"}}); err == nil {
		t.Error("a relative path was taken")
	}
}

// A process that only names the mount in its command line holds nothing, and is listed
// apart; the rest of its command line is not shown.
//
// Faults: A168.
func TestWhoNamesAMountInItsCommandLineIsTold(t *testing.T) {
	dir, _ := volume(t)
	start := func(args ...string) int {
		cmd := exec.Command("cat", append([]string{"/dev/null", "-"}, args...)...)
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait() // fails, since the last arguments are no files
		})
		return cmd.Process.Pid
	}
	beside, names := start(dir+"x"), start("key=secret,"+dir+"/sub")
	r := find(t, Query{Paths: []string{dir}})
	if r.Held() {
		t.Errorf("it is held: %+v", r)
	}
	found := false
	for _, p := range r.Named {
		if p.PID == beside {
			t.Errorf("%+v names something else", p)
		}
		if p.PID == names {
			found = slices.Equal(p.Uses, []Use{{Kind: "argument", Path: dir}}) && p.Name == "cat"
		}
	}
	if !found {
		t.Errorf("named by %+v, want process %d", r.Named, names)
	}
}

func TestNamesPath(t *testing.T) {
	for _, c := range []struct {
		arg, path string
		want      bool
	}{
		{"/a/b", "/a/b", true},
		{"/a/b", "/a/b/", true},
		{"/a/b/c", "/a/b", true},
		{"dir=/a/b,rw", "/a/b", true},
		{"/a/bc", "/a/b", false},
		{"/a/bc:/a/b", "/a/b", true},
		{"/x", "/a/b", false},
		{"", "/a/b", false},
		{"/a", "/", false},
	} {
		if got := namesPath(c.arg, c.path); got != c.want {
			t.Errorf("%q names %q: %v", c.arg, c.path, got)
		}
	}
}
