package freeze

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// journal is a journal in memory.
type journal struct {
	mu     sync.Mutex
	values map[string][]byte
	fail   error
}

func newJournal() *journal { return &journal{values: map[string][]byte{}} }

func (j *journal) LoadBucket(context.Context, string) (state.Values, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return state.Values{Sound: maps.Clone(j.values)}, nil
}

func (j *journal) CommitBucket(_ context.Context, _ string, changes map[string][]byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	for key, value := range changes {
		if value == nil {
			delete(j.values, key)
		} else {
			j.values[key] = value
		}
	}
	return nil
}

func (j *journal) records() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.values)
}

// rig is a Freezer for the file system of a loop device, with the kernel's own calls.
type rig struct {
	*Freezer
	t       *testing.T
	journal *journal
	path    string
	device  string
	die     func()
}

func newRig(t *testing.T, fsType string) *rig {
	t.Helper()
	r := &rig{t: t, journal: newJournal(), path: t.TempDir(), device: drivertest.Device(t, fsType)}
	if err := unix.Mount(r.device, r.path, fsType, 0, ""); err != nil {
		t.Fatal(err)
	}
	helpers := isolate.New(isolate.Config{Service: Helper()})
	t.Cleanup(func() {
		r.die()
		thawed(r.path)
		if err := unix.Unmount(r.path, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
		helpers.Close()
	})
	kernel := mount.New(t.TempDir())
	r.Freezer = New(Config{
		Journal: r.journal, Helpers: helpers, Boot: "boot", Never: []string{"/"}, Logger: slog.New(slog.DiscardHandler),
		Mounts:  func(ctx context.Context) ([]mount.Entry, error) { return kernel.List(ctx, "/") },
		Volumes: func() []Volume { return []Volume{staged("v", r.path)} },
	})
	r.run()
	return r
}

// run starts the Freezer; die ends it.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	f := r.Freezer
	go func() { ended <- f.Run(ctx) }()
	r.die = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
}

// freeze freezes the file system; the Freezer may still start.
func (r *rig) freeze(limit time.Duration) func(context.Context) bool {
	r.t.Helper()
	for {
		ran := started(r.Freezer) // read first, since Run may begin between a refusal and the look
		z, err := r.Freeze(r.t.Context(), "v", limit)
		switch {
		case err == nil:
			return z
		case !ran:
			continue
		}
		r.t.Fatal(err)
	}
}

func started(f *Freezer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.runCtx != nil
}

// thawed thaws a file system, and reports whether it was frozen.
func thawed(path string) bool {
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close()
	return ioctl(dir, iocThaw) == nil
}

// frozen reports whether a file system is frozen: the kernel refuses a second freeze.
func frozen(t *testing.T, path string) bool {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	switch err := ioctl(dir, iocFreeze); {
	case errors.Is(err, unix.EBUSY):
		return true
	case err != nil:
		t.Fatal(err)
	}
	if err := ioctl(dir, iocThaw); err != nil {
		t.Fatal(err)
	}
	return false
}

// A file system is frozen, with a record written first, until the caller thaws it; meanwhile
// it cannot be unmounted, and a writer that waited continues and loses nothing.
func TestAFreezeHoldsWritesAndEnds(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		r := newRig(t, fsType)
		z := r.freeze(time.Minute)
		if !frozen(t, r.path) || r.journal.records() != 1 {
			t.Errorf("%s: frozen %v, %d records", fsType, frozen(t, r.path), r.journal.records())
		}
		wrote := make(chan error, 1)
		go func() { wrote <- os.WriteFile(filepath.Join(r.path, "f"), []byte("x"), 0o600) }()
		if err := unix.Unmount(r.path, 0); !errors.Is(err, unix.EBUSY) {
			t.Errorf("%s: it is unmounted while it is frozen: %v", fsType, err)
		}
		select {
		case err := <-wrote:
			t.Errorf("%s: a write ended: %v", fsType, err)
		default:
		}
		if expired := z(t.Context()); expired {
			t.Errorf("%s: it is said to have ended early", fsType)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		if frozen(t, r.path) || r.journal.records() != 0 {
			t.Errorf("%s: after the thaw: %d records", fsType, r.journal.records())
		}
		if z(t.Context()) {
			t.Errorf("%s: a second thaw says that it ended early", fsType)
		}
		r.freeze(time.Minute)(t.Context())
	}
}

// The next daemon thaws by its record what a killed daemon left frozen, also if it has been
// mounted elsewhere since.
func TestTheNextDaemonThaws(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		r := newRig(t, fsType)
		r.freeze(time.Hour)
		record := maps.Clone(r.journal.values)
		r.die()
		dir, err := os.Open(r.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := ioctl(dir, iocFreeze); err != nil { // as a kill leaves it
			t.Fatal(err)
		}
		dir.Close()
		if err := unix.Unmount(r.path, 0); err != nil {
			t.Fatal(err)
		}
		elsewhere := t.TempDir()
		if err := unix.Mount(r.device, elsewhere, fsType, 0, ""); err != nil {
			t.Fatal(err)
		}
		if !frozen(t, elsewhere) {
			t.Fatalf("%s: the kernel has thawed it", fsType)
		}
		r.path, r.journal.values = elsewhere, record
		r.Freezer = New(r.c)
		r.run()
		r.freeze(time.Minute)(t.Context()) // waits until the earlier freeze has ended
		if frozen(t, elsewhere) {
			t.Errorf("%s: it is not thawed", fsType)
		}
	}
}

// A thaw has a helper also if calls of no volume that hang, as those that wait for it may, leave none.
func TestCallsThatHangKeepNoThawFromItsHelper(t *testing.T) {
	r := newRig(t, "ext4")
	service := Helper()
	hang, begun := make(chan struct{}), make(chan struct{})
	service.Handlers["hang"] = func(context.Context, []byte) ([]byte, error) { close(begun); <-hang; return nil, nil }
	helpers := isolate.New(isolate.Config{Service: service, Limit: 5}) // one call of no volume
	t.Cleanup(func() { close(hang); helpers.Close() })
	r.c.Helpers = helpers
	z := r.freeze(time.Minute)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := helpers.Do(ctx, "hangs", "hang", nil); left <- err }()
	<-begun
	leave()
	<-left
	if _, err := helpers.Do(t.Context(), "other", "none", nil); !errors.Is(err, isolate.ErrLimit) {
		t.Fatalf("another call of no volume: %v, want ErrLimit", err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute/2)
	defer cancel()
	if z(within) || frozen(t, r.path) {
		t.Error("it is not thawed")
	}
}

// A freeze of another program stays; tmpfs cannot be frozen.
func TestWhatIsNotFrozen(t *testing.T) {
	r := newRig(t, "ext4")
	r.freeze(time.Minute)(t.Context())
	dir, err := os.Open(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := ioctl(dir, iocFreeze); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Freeze(t.Context(), "v", time.Minute); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	if !frozen(t, r.path) || r.journal.records() != 0 {
		t.Error("another program's freeze was ended")
	}
	if err := ioctl(dir, iocThaw); err != nil {
		t.Fatal(err)
	}
	if _, err := doFreeze(t.Context(), []byte(`{"path":"/dev/shm"}`)); !errors.Is(err, ErrUnable) {
		t.Errorf("tmpfs: %v", err)
	}
	if _, err := doThaw(t.Context(), []byte(`{"path":"/","device":"4095:1"}`)); err == nil {
		t.Error("another device is thawed")
	}
}

// A program writes a counter to one file, syncs, and then to another, as a database writes its
// journal and then its table. A slow copy of the image holds one moment if the file system is
// frozen, and does not otherwise.
func TestTwoFilesAgreeInACopyOfAFrozenFileSystem(t *testing.T) {
	const copies = 200
	r := newRig(t, "ext4")
	w := newWriter(t, r.path, imageOf(t, r.device))
	for range copies {
		z := r.freeze(time.Minute)
		first := w.read(0)
		w.yield()
		if second := w.read(1); first != second && first != second+1 {
			t.Fatalf("the first file has %d, the second %d", first, second)
		}
		if z(t.Context()) {
			t.Fatal("it ended early")
		}
		w.await(2)
	}
	first := w.read(0)
	w.await(10)
	if second := w.read(1); second <= first {
		t.Errorf("without a freeze the copy has %d and %d: this test cannot fail", first, second)
	}
}

// writer writes a counter, endlessly.
type writer struct {
	t     *testing.T
	image *os.File
	at    [2]int64 // the offsets of the files in the image
	round chan uint64
}

func newWriter(t *testing.T, dir string, image *os.File) *writer {
	w := &writer{t: t, image: image, round: make(chan uint64)}
	var files [2]*os.File
	for i, name := range []string{"first", "second"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.Write(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		files[i], w.at[i] = f, offset(t, f)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for n := uint64(1); ; n++ {
			for _, f := range files {
				if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, n), 0); err != nil {
					t.Error(err)
					return
				}
				if err := f.Sync(); err != nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-stop:
				return
			default:
			}
			select {
			case w.round <- n:
			default:
			}
		}
	}()
	w.await(1)
	return w
}

// yield lets the writer run, if it can.
func (w *writer) yield() {
	for range 100 {
		runtime.Gosched()
	}
}

// await waits for some rounds.
func (w *writer) await(rounds int) {
	for range rounds {
		<-w.round
	}
}

// read returns the counter of a file from the image, without the mounted file system.
func (w *writer) read(i int) uint64 {
	w.t.Helper()
	text := make([]byte, 8)
	if _, err := w.image.ReadAt(text, w.at[i]); err != nil {
		w.t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(text)
}

// offset returns where in its device a file of one block lies.
func offset(t *testing.T, f *os.File) int64 {
	t.Helper()
	size, err := unix.IoctlGetInt(int(f.Fd()), 2) // FIGETBSZ
	if err != nil {
		t.Fatal(err)
	}
	var block int32 // the first block of the file
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 1, uintptr(unsafe.Pointer(&block))); errno != 0 || block == 0 {
		t.Fatalf("FIBMAP: block %d: %v", block, errno)
	}
	return int64(block) * int64(size)
}

// imageOf opens the image of a loop device.
func imageOf(t *testing.T, device string) *os.File {
	t.Helper()
	name, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(strings.TrimSpace(string(name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
