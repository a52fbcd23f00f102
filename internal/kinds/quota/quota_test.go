package quota

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// disk is a kernel with one file system; it keeps its state over a crash of the daemon.
type disk struct {
	off      bool
	projects map[string]uint32 // by directory
	limits   map[uint32]int64
	// crash is the number of the changing call before which the process dies; 0 is
	// never.
	crash, calls int
}

var errCrash = errors.New("crash")

func (d *disk) step() error {
	if d.calls++; d.calls == d.crash {
		return errCrash
	}
	return nil
}

func (d *disk) enforced(*os.File) (bool, error)      { return !d.off, nil }
func (d *disk) project(dir *os.File) (uint32, error) { return d.projects[dir.Name()], nil }
func (d *disk) setProject(dir *os.File, id uint32) error {
	err := d.step()
	if err == nil {
		d.projects[dir.Name()] = id
	}
	return err
}

func (d *disk) quota(_ *os.File, id uint32) (account, error) {
	a := account{limited: d.limits[id] != 0}
	for dir, its := range d.projects {
		if _, err := os.Lstat(dir); err == nil && its == id {
			a.used = true
		}
	}
	return a, nil
}

func (d *disk) setLimit(_ *os.File, id uint32, bytes int64) error {
	err := d.step()
	if err == nil {
		d.limits[id] = bytes
	}
	return err
}

// volume is a directory and its scratch directory.
type volume struct{ dir, scratch *os.File }

func newVolume(t *testing.T) volume {
	t.Helper()
	open := func() *os.File {
		f, err := os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	return volume{open(), open()}
}

func (v volume) remove(t *testing.T, p *Projects) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(v.dir.Name()), p.Release(v.scratch)); err != nil {
		t.Error(err)
	}
}

func newDisk() *disk { return &disk{projects: map[string]uint32{}, limits: map[uint32]int64{}} }

func (d *disk) start(taken ...string) *Projects { return &Projects{kernel: d, taken: taken} }

// TestWhatIsAskedOfTheKernelIsAsTheKernelHasIt checks the sizes of the kernel's
// structures.
func TestWhatIsAskedOfTheKernelIsAsTheKernelHasIt(t *testing.T) {
	if a, b, c := unsafe.Sizeof(dqblk{}), unsafe.Sizeof(stateV{}), unsafe.Sizeof(fsxattr{}); a != 72 || b != 160 || c != 28 {
		t.Errorf("got %d, %d, %d, want 72, 160, 28", a, b, c)
	}
}

// TestWhereThereAreNoQuotas: Limit writes nothing, neither there nor in the scratch
// directory.
// Items: M05.
func TestWhereThereAreNoQuotas(t *testing.T) {
	v := newVolume(t)
	memory := t.TempDir()
	if err := unix.Mount("none", memory, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(memory, unix.MNT_DETACH) })
	for _, path := range []string{memory, "/proc"} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := New().Limit(f, v.scratch, 1<<20); !errors.Is(err, ErrNone) {
			t.Errorf("on %s: got %v, want ErrNone", path, err)
		}
		f.Close()
	}
	d := newDisk()
	d.off = true
	if err := d.start().Limit(v.dir, v.scratch, 1<<20); !errors.Is(err, ErrNone) || d.calls != 0 {
		t.Errorf("got %v and %d calls, want ErrNone and none", err, d.calls)
	}
	if _, err := os.Lstat(filepath.Join(v.scratch.Name(), record)); !os.IsNotExist(err) {
		t.Errorf("a record was made: %v", err)
	}
	v.remove(t, New())
}

// TestProjectsAreNobodyElses: Limit takes no project of another directory, and none
// that a user has listed, limited or used. A project is free again once its directory
// is gone.
// Items: M05.
func TestProjectsAreNobodyElses(t *testing.T) {
	listed := filepath.Join(t.TempDir(), "projects")
	text := "# people's\n" + strconv.Itoa(firstID) + ":/srv\nname: " + strconv.Itoa(firstID+1) + "\n"
	if err := os.WriteFile(listed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDisk()
	d.limits[firstID+2] = 1
	other := newVolume(t)
	d.projects[other.dir.Name()] = firstID + 3
	a, b := newVolume(t), newVolume(t)
	for i, v := range []volume{a, b} {
		p := d.start(listed, "/nonexistent")
		for _, size := range []int64{1 << 20, 2 << 20} {
			if err := p.Limit(v.dir, v.scratch, size); err != nil {
				t.Fatal(err)
			}
			if id := d.projects[v.dir.Name()]; id != uint32(firstID+4+i) || d.limits[id] != size {
				t.Errorf("directory %d: got project %d with %d bytes, want %d with %d", i, id, d.limits[id], firstID+4+i, size)
			}
		}
	}
	p := d.start(listed)
	a.remove(t, p)
	if d.limits[firstID+4] != 0 || d.limits[firstID+5] == 0 {
		t.Errorf("limits after one is gone: %v", d.limits)
	}
	c := newVolume(t)
	if err := p.Limit(c.dir, c.scratch, 1); err != nil || d.projects[c.dir.Name()] != firstID+4 {
		t.Errorf("got project %d, %v, want the one that is free again", d.projects[c.dir.Name()], err)
	}
}

// TestAllProjectsAreTaken: Limit returns an error and gives out no project of another
// directory.
func TestAllProjectsAreTaken(t *testing.T) {
	d, v := newDisk(), newVolume(t)
	for i := range uint32(ids) {
		d.limits[firstID+i] = 1
	}
	if err := d.start().Limit(v.dir, v.scratch, 1); err == nil || !strings.Contains(err.Error(), "is free") || len(d.projects) != 0 {
		t.Errorf("got %v and %v", err, d.projects)
	}
}

// TestDirectoryThatHoldsSomethingIsLeftAlone: the quota would not count the existing
// files.
func TestDirectoryThatHoldsSomethingIsLeftAlone(t *testing.T) {
	d, v := newDisk(), newVolume(t)
	if err := os.Mkdir(filepath.Join(v.dir.Name(), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.start().Limit(v.dir, v.scratch, 1); err != nil || d.calls != 0 {
		t.Errorf("got %v and %d calls, want nothing done", err, d.calls)
	}
}

// TestACrashAtAnyStepIsMended: two directories, the first interrupted by a crash, never
// share a project. Both end up limited, and nothing is left of them.
// Items: M05.
func TestACrashAtAnyStepIsMended(t *testing.T) {
	for crash := 1; ; crash++ {
		d, a, b := newDisk(), newVolume(t), newVolume(t)
		d.crash = crash
		if err := d.start().Limit(a.dir, a.scratch, 1<<20); err == nil {
			break
		} else if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		for _, v := range []volume{b, a} { // each in a new process
			if err := d.start().Limit(v.dir, v.scratch, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		ida, idb := d.projects[a.dir.Name()], d.projects[b.dir.Name()]
		if ida == idb || d.limits[ida] != 1<<20 || d.limits[idb] != 1<<20 {
			t.Errorf("crash before call %d: projects %d and %d, limits %v", crash, ida, idb, d.limits)
		}
		a.remove(t, d.start())
		if d.limits[idb] != 1<<20 {
			t.Errorf("crash before call %d: the other's limit went too", crash)
		}
		b.remove(t, d.start())
	}
}

// TestARecordThatWasCutOffByACrashDoesNoHarm: nor does a record whose project now
// belongs to another directory.
// Items: M05.
func TestARecordThatWasCutOffByACrashDoesNoHarm(t *testing.T) {
	d, v, other := newDisk(), newVolume(t), newVolume(t)
	if err := d.start().Limit(other.dir, other.scratch, 7<<20); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "x", "12", strconv.Itoa(firstID)} {
		if err := os.WriteFile(filepath.Join(v.scratch.Name(), record), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.start().Release(v.scratch); err != nil || d.limits[firstID] != 7<<20 {
			t.Errorf("record %q, released: %v, limits %v", text, err, d.limits)
		}
		if err := os.WriteFile(filepath.Join(v.scratch.Name(), record), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.start().Limit(v.dir, v.scratch, 1<<20); err != nil || d.projects[v.dir.Name()] == firstID {
			t.Errorf("record %q, limited: %v, %v", text, err, d.projects)
		}
		delete(d.projects, v.dir.Name())
		delete(d.limits, firstID+1)
	}
}

// TestMeasureCountsWhatIsThere: Measure counts each file once, and nothing behind links
// or mounts.
// Items: M05.
func TestMeasureCountsWhatIsThere(t *testing.T) {
	top := t.TempDir()
	if err := unix.Mount("none", top, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(top, unix.MNT_DETACH) })
	in := filepath.Join(top, "in")
	outside := filepath.Join(top, "outside")
	kib := make([]byte, 64<<10)
	if err := errors.Join(
		os.MkdirAll(in+"/a/b/other", 0o700), os.WriteFile(in+"/one", kib, 0o600), os.WriteFile(in+"/a/b/two", kib, 0o600),
		os.Link(in+"/one", in+"/a/again"), os.WriteFile(outside, kib, 0o600), os.Symlink(outside, in+"/link"), os.Symlink(top, in+"/a/up"),
		unix.Mount("none", in+"/a/b/other", "tmpfs", 0, ""), os.WriteFile(in+"/a/b/other/three", kib, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// in, a, b, one, two, two links; the mount point belongs to the other mount.
	want := Usage{Bytes: 128 << 10, Inodes: 7}
	for range 2 {
		if got, err := Measure(t.Context(), f); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it given up", err)
	}
}

// A directory that a pod removes during the measurement counts as empty; the result is
// not partial.
func TestADirectoryThatGoesWhileItIsMeasuredIsEmpty(t *testing.T) {
	at := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if got, err := Measure(t.Context(), f); err != nil || got.Partial {
		t.Errorf("got %+v, %v, want it whole", got, err)
	}
}

// TestWhatIsTooDeepIsToldOf: Measure reports the result as partial and needs a bounded
// number of descriptors.
func TestWhatIsTooDeepIsToldOf(t *testing.T) {
	top := t.TempDir()
	at, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range maxDepth + 2 {
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	f, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := Measure(t.Context(), f); err != nil || !got.Partial || got.Inodes != maxDepth+2 {
		t.Errorf("got %+v, %v, want it partial, with %d inodes", got, err, maxDepth+2)
	}
}
