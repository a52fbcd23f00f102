package payload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/payload"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

var moment = time.Date(2026, 1, 2, 15, 4, 5, 123456789, time.UTC)

const firstSet = "..2026_01_02_15_04_05.123456789"

// volume is a directory to which tests write payloads.
type volume struct {
	t    testing.TB
	path string
	now  func() time.Time
	dirs []string
}

// hourly is a clock that advances an hour at each reading, so that no set replaced
// before the last write is kept.
func hourly() func() time.Time {
	next := moment
	return func() time.Time { now := next; next = next.Add(time.Hour); return now }
}

// In memory, since a disk's syncs would only slow the tests down.
func newVolume(t testing.TB) *volume { t.Helper(); return newVolumeOn(t, "tmpfs") }

func newVolumeOn(t testing.TB, fsType string) *volume {
	t.Helper()
	v := &volume{t: t, path: filepath.Join(t.TempDir(), "volume"), now: hourly()}
	if err := os.Mkdir(v.path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("volume", v.path, fsType, 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(v.path, unix.MNT_DETACH) })
	return v
}

func (v *volume) write(ctx context.Context, files payload.Files, fsGroup *int64) (bool, error) {
	v.t.Helper()
	done, err := v.writeSet(ctx, files, fsGroup)
	return done.Changed, err
}

func (v *volume) writeSet(ctx context.Context, files payload.Files, fsGroup *int64) (payload.Written, error) {
	v.t.Helper()
	f, err := os.Open(v.path)
	if err != nil {
		v.t.Fatal(err)
	}
	defer f.Close()
	w := payload.Writer{Kernel: mount.New(), Now: v.now}
	return w.Write(ctx, f, payload.Set{Files: files, Dirs: v.dirs, FSGroup: fsGroup})
}

func (v *volume) sweep() (left int) {
	v.t.Helper()
	f, err := os.Open(v.path)
	if err != nil {
		v.t.Fatal(err)
	}
	defer f.Close()
	w := payload.Writer{Kernel: mount.New(), Now: v.now}
	if left, err = w.Sweep(v.t.Context(), f); err != nil {
		v.t.Fatal(err)
	}
	return left
}

// must writes and fails the test unless the result is changed.
func (v *volume) must(files payload.Files, changed bool) {
	v.t.Helper()
	got, err := v.write(v.t.Context(), files, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	if got != changed {
		v.t.Errorf("changed: got %v, want %v", got, changed)
	}
}

// want fails the test unless a reader finds exactly these files.
func (v *volume) want(files payload.Files) {
	v.t.Helper()
	got := map[string]string{}
	walk(v.t, v.path, "", got)
	for p, file := range files {
		if want := fmt.Sprintf("%s %04o", file.Data, file.Mode); got[p] != want {
			v.t.Errorf("%s: got %q, want %q", p, got[p], want)
		}
		delete(got, p)
	}
	for p := range got {
		v.t.Errorf("%s: is there, should not be", p)
	}
}

// walk returns content and mode of the files that a reader finds, following links.
func walk(t testing.TB, dir, prefix string, found map[string]string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if prefix == "" && strings.HasPrefix(e.Name(), "..") {
			continue
		}
		p := filepath.Join(dir, e.Name())
		st, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if st.IsDir() {
			walk(t, p, prefix+e.Name()+"/", found)
			continue
		}
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		found[prefix+e.Name()] = fmt.Sprintf("%s %04o", data, st.Mode().Perm())
	}
}

func (v *volume) readlink(name string) string {
	v.t.Helper()
	to, err := os.Readlink(filepath.Join(v.path, name))
	if err != nil {
		v.t.Fatal(err)
	}
	return to
}

func (v *volume) names() []string {
	v.t.Helper()
	entries, err := os.ReadDir(v.path)
	if err != nil {
		v.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func text(content string) payload.File { return payload.File{Data: []byte(content), Mode: 0o644} }

func TestLayoutIsTheOnePodsKnow(t *testing.T) {
	v := newVolume(t)
	files := payload.Files{"a": text("1"), "d/b": text("2"), "d/e/c": {Data: []byte("3"), Mode: 0o400}}
	v.must(files, true)
	v.want(files)
	if got, want := v.names(), []string{firstSet, "..data", "a", "d"}; !slices.Equal(got, want) {
		t.Errorf("entries: got %q, want %q", got, want)
	}
	for name, want := range map[string]string{"..data": firstSet, "a": "..data/a", "d": "..data/d"} {
		if got := v.readlink(name); got != want {
			t.Errorf("%s: leads to %q, want %q", name, got, want)
		}
	}
	for _, dir := range []string{firstSet, firstSet + "/d", firstSet + "/d/e"} {
		if st, err := os.Stat(filepath.Join(v.path, dir)); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: got %v, %v, want mode 0755", dir, st.Mode(), err)
		}
	}
}

// Attacks: C24.
func TestModesAreIndependentOfTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o077} {
		defer unix.Umask(unix.Umask(mask))
		v := newVolume(t)
		files := payload.Files{"a": {Mode: 0o666}, "d/b": {Mode: 0o604}}
		v.must(files, true)
		v.want(files)
		if st, err := os.Stat(filepath.Join(v.path, "d")); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("umask %03o: d: got %v, %v, want mode 0755", mask, st.Mode(), err)
		}
	}
}

// Items: L04.
func TestUpdateReplacesAllAndRemovesWhatIsGone(t *testing.T) {
	v := newVolume(t)
	v.must(payload.Files{"keep": text("1"), "gone": text("1"), "d/x": text("1")}, true)
	next := payload.Files{"keep": text("2"), "new": text("2")}
	v.must(next, true)
	v.want(next)
	if _, err := os.Lstat(filepath.Join(v.path, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("link of a removed key: got %v, want that it does not exist", err)
	}
}

func TestFileMayBecomeDirectoryAndBack(t *testing.T) {
	v := newVolume(t)
	for _, files := range []payload.Files{{"a": text("1")}, {"a/b": text("2")}, {"a": text("3")}, {}} {
		v.must(files, true)
		v.want(files)
	}
}

// Items: L04.
func TestUnchangedContentMakesNothingNew(t *testing.T) {
	v := newVolume(t)
	files := payload.Files{"a": text("1"), "d/b": text("2")}
	v.must(files, true)
	before := v.readlink("..data")
	v.must(files, false)
	if got := v.readlink("..data"); got != before {
		t.Errorf("..data: got %q, want still %q", got, before)
	}
}

func TestAnyDifferenceIsWritten(t *testing.T) {
	base := payload.Files{"a": text("1"), "d/b": text("2")}
	for name, next := range map[string]payload.Files{
		"content":      {"a": text("x"), "d/b": text("2")},
		"shorter":      {"a": text(""), "d/b": text("2")},
		"longer":       {"a": text("11"), "d/b": text("2")},
		"mode":         {"a": {Data: []byte("1"), Mode: 0o600}, "d/b": text("2")},
		"one less":     {"a": text("1")},
		"one more":     {"a": text("1"), "d/b": text("2"), "d/c": text("3")},
		"nested moved": {"a": text("1"), "d/e/b": text("2")},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolume(t)
			v.must(base, true)
			v.must(next, true)
			v.want(next)
			v.must(next, false)
		})
	}
}

// Items: L15.
func TestDamageIsMended(t *testing.T) {
	files := payload.Files{"a": text("1"), "d/b": text("2")}
	for name, damage := range map[string]func(v string) error{
		"content":        func(v string) error { return os.WriteFile(v+"/a", []byte("x"), 0) },
		"mode":           func(v string) error { return os.Chmod(v+"/a", 0o600) },
		"dir mode":       func(v string) error { return os.Chmod(v+"/d", 0o700) },
		"file gone":      func(v string) error { return os.Remove(v + "/..data/a") },
		"file added":     func(v string) error { return os.WriteFile(v+"/..data/d/c", nil, 0o644) },
		"link gone":      func(v string) error { return os.Remove(v + "/a") },
		"link astray":    func(v string) error { return errors.Join(os.Remove(v+"/a"), os.Symlink("/etc", v+"/a")) },
		"link is file":   func(v string) error { return errors.Join(os.Remove(v+"/a"), os.WriteFile(v+"/a", nil, 0)) },
		"link is dir":    func(v string) error { return errors.Join(os.Remove(v+"/a"), os.Mkdir(v+"/a", 0o755)) },
		"current gone":   func(v string) error { return os.Remove(v + "/..data") },
		"current astray": func(v string) error { return errors.Join(os.Remove(v+"/..data"), os.Symlink("/etc", v+"/..data")) },
		"current is dir": func(v string) error { return errors.Join(os.Remove(v+"/..data"), os.Mkdir(v+"/..data", 0o755)) },
		"set gone":       func(v string) error { return os.RemoveAll(v + "/" + firstSet) },
		"switch broken":  func(v string) error { return os.Symlink("nowhere", v+"/..data_tmp") },
		"switch is dir":  func(v string) error { return os.MkdirAll(v+"/..data_tmp/x", 0o755) },
		"set half made":  func(v string) error { return os.MkdirAll(v+"/..2026_01_02_15_04_06.000000000/x", 0o700) },
		"file is a fifo": func(v string) error { return errors.Join(os.Remove(v+"/..data/a"), unix.Mkfifo(v+"/..data/a", 0o644)) },
		"file is linked": func(v string) error {
			return errors.Join(os.Remove(v+"/..data/a"), os.Symlink("/etc/passwd", v+"/..data/a"))
		},
		"directory linked": func(v string) error {
			return errors.Join(os.RemoveAll(v+"/..data/d"), os.Symlink("/etc", v+"/..data/d"))
		},
		"directory linked within": func(v string) error {
			return errors.Join(os.Rename(v+"/..data/d", v+"/moved"), os.Symlink("../moved", v+"/..data/d"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolume(t)
			v.write(t.Context(), files, nil)
			if err := damage(v.path); err != nil {
				t.Fatal(err)
			}
			if _, err := v.write(t.Context(), files, nil); err != nil {
				t.Fatal(err)
			}
			if st, err := os.Lstat(v.path + "/..data/d"); err != nil || !st.IsDir() {
				t.Errorf("d: got %v, %v, want a directory", st, err)
			}
			os.RemoveAll(v.path + "/moved")
			v.want(files)
			next := payload.Files{"a": text("next")}
			v.must(next, true)
			v.want(next)
		})
	}
}

func TestWhatIsNotOursStays(t *testing.T) {
	v := newVolume(t)
	v.must(payload.Files{"a": text("1")}, true)
	// A container runtime makes directories for volumes mounted below this one.
	if err := os.MkdirAll(filepath.Join(v.path, "nested/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	v.must(payload.Files{"b": text("1")}, true)
	if _, err := os.Stat(filepath.Join(v.path, "nested/deep")); err != nil {
		t.Error(err)
	}
	if _, err := v.write(t.Context(), payload.Files{"nested": text("1")}, nil); err == nil {
		t.Error("a key where a full directory is: got no error")
	}
	if _, err := os.Stat(filepath.Join(v.path, "nested/deep")); err != nil {
		t.Error(err)
	}
}

// Items: L04.
func TestReplacedSetsAreKeptForTheirTime(t *testing.T) {
	v := newVolume(t)
	now := moment
	v.now = func() time.Time { return now }
	var sets []string
	for i := range 5 {
		now = now.Add(payload.KeepTime / 2)
		v.must(payload.Files{"a": text(fmt.Sprint(i))}, true)
		sets = append(sets, v.readlink("..data"))
	}
	// The last set was replaced now, the one before it half of KeepTime ago.
	if got, want := v.names(), append(slices.Clone(sets[2:]), "..data", "a"); !slices.Equal(got, want) {
		t.Errorf("entries: got %q, want %q", got, want)
	}
	now = now.Add(payload.KeepTime / 2)
	if left := v.sweep(); left != 1 {
		t.Errorf("half of the time later: %d are left, want 1", left)
	}
	now = now.Add(payload.KeepTime / 2)
	v.must(payload.Files{"a": text("4")}, false) // a write without a change sweeps too
	if got, want := v.names(), []string{sets[4], "..data", "a"}; !slices.Equal(got, want) {
		t.Errorf("entries: got %q, want %q", got, want)
	}
}

// TestWriteSaysWhatIsLeftToSweep: after the first set, nothing.
// Items: L04.
func TestWriteSaysWhatIsLeftToSweep(t *testing.T) {
	v := newVolume(t)
	v.now = func() time.Time { return moment }
	for i, left := range []int{0, 1, 2, 2} {
		want := payload.Written{Changed: i < 3, Left: left}
		got, err := v.writeSet(t.Context(), payload.Files{"a": text(fmt.Sprint(min(i, 2)))}, nil)
		if err != nil || got != want {
			t.Errorf("write %d: %+v, %v, want %+v", i, got, err, want)
		}
	}
}

// TestAWriterThatIsTooFastWaits: the number of replaced sets is bounded, and none is
// taken from its readers before its time.
// Items: L04.
func TestAWriterThatIsTooFastWaits(t *testing.T) {
	v := newVolume(t)
	v.now = func() time.Time { return moment } // no set gets old
	for i := range 65 {
		v.must(payload.Files{"a": text(fmt.Sprint(i))}, true)
	}
	if got := len(v.names()); got != 67 { // ..data and a
		t.Errorf("%d entries, want all 65 sets", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.write(ctx, payload.Files{"a": text("late")}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("told to end while it waits: %v", err)
	}
	v.must(payload.Files{"a": text("late")}, true) // waits until one set may go
	if got := len(v.names()); got != 67 {
		t.Errorf("%d entries, want one set less and one more", got)
	}
}

// Items: L04.
func TestTheClockMayBePutBack(t *testing.T) {
	v := newVolume(t)
	now := moment
	v.now = func() time.Time { return now }
	for i := range 3 {
		v.must(payload.Files{"a": text(fmt.Sprint(i))}, true)
		v.want(payload.Files{"a": text(fmt.Sprint(i))})
		now = now.Add(-time.Hour)
	}
	v.must(payload.Files{"a": text("2")}, false)
	v.want(payload.Files{"a": text("2")})
}

// Items: L13.
func TestDirectoriesForNestedMounts(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	v := newVolume(t)
	v.dirs = []string{"beside", "deep/er", "d/in", "d/b", "a/x", "..data/x"}
	files := payload.Files{"a": text("1"), "d/b": text("2")}
	v.must(files, true)
	v.must(files, false)
	for p, want := range map[string]string{"beside": "", "deep/er": "", "d/in": "", "d/b": "file", "a": "file"} {
		st, err := os.Stat(filepath.Join(v.path, p))
		if err != nil || st.IsDir() == (want == "file") || st.IsDir() && st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", p, st, err)
		}
	}
	if to := v.readlink("d"); to != "..data/d" {
		t.Errorf("d leads to %q", to)
	}
	v.dirs = v.dirs[:1]
	v.must(files, true) // d/in is no longer part of it
	if _, err := os.Stat(filepath.Join(v.path, "d/in")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("d/in: %v", err)
	}
}

// Items: L09, Q02.
func TestOwnerIsSetBeforeTheFilesAreSeen(t *testing.T) {
	v := newVolume(t)
	uid, gid := int64(1234), int64(4711)
	files := payload.Files{"token": {Data: []byte("t"), Mode: 0o600, Owner: &uid}, "other": text("1")}
	for _, group := range []*int64{nil, &gid} {
		for _, changed := range []bool{true, false} {
			if got, err := v.write(t.Context(), files, group); err != nil || got != changed {
				t.Errorf("changed: %v, %v, want %v", got, err, changed)
			}
		}
		var token, other unix.Stat_t
		if err := errors.Join(unix.Stat(v.path+"/token", &token), unix.Stat(v.path+"/other", &other)); err != nil {
			t.Fatal(err)
		}
		want := uint32(0o600)
		if group != nil {
			want = 0o640
		}
		if token.Uid != 1234 || other.Uid != 0 || token.Mode&0o777 != want {
			t.Errorf("token: mode %o of %d, other of %d", token.Mode, token.Uid, other.Uid)
		}
	}
}

// The key of an object cannot lead out of the volume.
// Attacks: C10.
// Items: L06.
func TestAttackPathsThatLeadElsewhereAreRefused(t *testing.T) {
	v := newVolume(t)
	good := payload.Files{"a": text("1")}
	v.must(good, true)
	for _, p := range []string{
		"", ".", "..", "../x", "a/../../x", "a/..", "/abs", "..data", "..2026_01_02", "..x/y", "a\x00b",
		strings.Repeat("x", 256), "d/" + strings.Repeat("x", 256), strings.Repeat("x/", 2100) + "x",
		"./a", "a//b", "a/",
	} {
		if _, err := v.write(t.Context(), payload.Files{p: text("evil")}, nil); !errors.Is(err, content.ErrPath) {
			t.Errorf("path %.20q: got %v, want ErrPath", p, err)
		}
	}
	if _, err := v.write(t.Context(), payload.Files{"x": text(""), "x/y": text("")}, nil); !errors.Is(err, content.ErrPath) {
		t.Errorf("file that is a directory too: got %v, want ErrPath", err)
	}
	if _, err := v.write(t.Context(), payload.Files{"x": {Mode: 0o4755}}, nil); err == nil {
		t.Error("mode 4755: got no error")
	}
	v.want(good)
}

// Items: L16.
func TestGroupIsSetBeforeTheFilesAreSeen(t *testing.T) {
	v := newVolume(t)
	gid := int64(4711)
	files := payload.Files{"a": {Data: []byte("1"), Mode: 0o400}, "d/b": {Mode: 0o600}}
	if changed, err := v.write(t.Context(), files, &gid); err != nil || !changed {
		t.Fatalf("got %v, %v", changed, err)
	}
	for p, want := range map[string]uint32{"a": 0o100440, "d/b": 0o100640, "d": 0o042755, "..data/": 0o042755} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(v.path, p), &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode != want || st.Gid != uint32(gid) {
			t.Errorf("%s: got %o of group %d, want %o of %d", p, st.Mode, st.Gid, want, gid)
		}
	}
	if changed, err := v.write(t.Context(), files, &gid); err != nil || changed {
		t.Errorf("again: got %v, %v, want nothing changed", changed, err)
	}
	gid++
	if changed, err := v.write(t.Context(), files, &gid); err != nil || !changed {
		t.Errorf("other group: got %v, %v, want a new set", changed, err)
	}
}

func TestCancelledWriteKeepsTheLastGood(t *testing.T) {
	v := newVolume(t)
	good := payload.Files{"a": text("1")}
	v.must(good, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.write(ctx, payload.Files{"a": text("2")}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	v.want(good)
	if got := v.names(); len(got) != 3 {
		t.Errorf("entries: got %q, want nothing of the write that failed", got)
	}
}

func TestFullDiskKeepsTheLastGood(t *testing.T) {
	v := newVolume(t)
	if err := unix.Mount("tmpfs", v.path, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(v.path, unix.MNT_DETACH) })
	good := payload.Files{"a": text("1"), "b": text("1")}
	v.must(good, true)
	big := text(strings.Repeat("x", 128<<10))
	if _, err := v.write(t.Context(), payload.Files{"a": text("2"), "b": big}, nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
	v.want(good)
	v.must(payload.Files{"a": text("3")}, true)
}

// Whatever a pod with write access to the volume puts in place of the driver's entries,
// a tree outside is not touched.
// Attacks: C3.
func TestAttackLinksOfAPodLeadNowhere(t *testing.T) {
	canary := t.TempDir()
	if err := errors.Join(os.WriteFile(canary+"/a", []byte("canary"), 0o600), os.Mkdir(canary+"/d", 0o700)); err != nil {
		t.Fatal(err)
	}
	v := newVolume(t)
	gid := int64(4711)
	for i := range 200 {
		files := payload.Files{"a": text(fmt.Sprint(i)), "d/b": text(fmt.Sprint(i))}
		if _, err := v.write(t.Context(), files, &gid); err != nil {
			t.Fatal(err)
		}
		set := v.readlink("..data")
		for _, name := range [][]string{{"..data"}, {"..data_tmp"}, {"..link_tmp"}, {set}, {set + "/d"}, {"a", "d"}}[i%6] {
			p := filepath.Join(v.path, name)
			if err := errors.Join(os.RemoveAll(p), os.Symlink(canary, p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if data, err := os.ReadFile(canary + "/a"); err != nil || string(data) != "canary" {
		t.Errorf("canary: got %q, %v", data, err)
	}
	entries, err := os.ReadDir(canary)
	if err != nil || len(entries) != 2 {
		t.Errorf("canary's directory: got %v, %v, want a and d", entries, err)
	}
	for _, p := range []string{"/a", "/d", ""} {
		var st unix.Stat_t
		if err := unix.Lstat(canary+p, &st); err != nil || st.Gid != 0 {
			t.Errorf("canary%s: group %d, %v, want 0", p, st.Gid, err)
		}
	}
}
