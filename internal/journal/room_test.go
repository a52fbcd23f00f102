package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// smallDisk returns a directory on a file system of its own, of that many bytes, which no
// path reaches and which goes with the test.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatalf("this test needs root: %v", err)
	}
	defer unix.Close(context)
	if err := errors.Join(unix.FsconfigSetString(context, "size", fmt.Sprint(bytes)), unix.FsconfigCreate(context)); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}

// fill writes to a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// On a full disk nothing is begun, and everything that was begun can be ended: each of
// hundreds of volumes, step by step.
//
// Faults: A053.
func TestOnAFullDiskWhatWasBegunIsEnded(t *testing.T) {
	dir := smallDisk(t, 16<<20)
	b, err := OpenBolt(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const volumes = 300
	all := map[state.VolumeID]*state.Volume{}
	for i := range volumes {
		v := sample(state.VolumeID(fmt.Sprint("v", i)))
		all[v.ID] = &v
	}
	commit(t, b, all)
	if err := b.CommitBucket(t.Context(), "pods", map[string][]byte{"old": []byte("x")}); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, "rest"))

	next := sample("next")
	begun := *all["v0"]
	begun.Mounts = map[state.PodUID]state.Mount{"another": {Fact: state.Fact{Phase: state.Entering}}}
	for what, v := range map[string]*state.Volume{"a volume": &next, "a mount": &begun} {
		if err := b.Commit(t.Context(), map[state.VolumeID]*state.Volume{v.ID: v}); !errors.Is(err, state.ErrFull) {
			t.Errorf("begin %s: got %v, want ErrFull", what, err)
		}
	}
	if err := b.CommitBucket(t.Context(), "pods", map[string][]byte{"new": []byte("x")}); !errors.Is(err, state.ErrFull) {
		t.Errorf("a new pod: got %v, want ErrFull", err)
	}
	if err := b.CommitBucket(t.Context(), "pods", map[string][]byte{"old": []byte("y")}); err != nil {
		t.Errorf("another value of what is there: %v", err)
	}
	for id, v := range all {
		failed := *v
		v := *v
		v.Mounts, v.Stage.Phase = nil, state.Leaving
		if err := b.Commit(t.Context(), map[state.VolumeID]*state.Volume{id: &v}); err != nil {
			t.Fatalf("begin to remove %s: %v", id, err)
		}
		failed.Mounts = nil
		if err := b.Commit(t.Context(), map[state.VolumeID]*state.Volume{id: &failed}); err != nil {
			t.Fatalf("what the failure of the first step leaves of %s: %v", id, err)
		}
		if err := b.Commit(t.Context(), map[state.VolumeID]*state.Volume{id: nil}); err != nil {
			t.Fatalf("end %s: %v", id, err)
		}
	}
	if got, err := b.Load(t.Context()); err != nil || len(got.Volumes) != 0 {
		t.Errorf("%d records left, %v", len(got.Volumes), err)
	}
	if err := os.Remove(filepath.Join(dir, "rest")); err != nil {
		t.Fatal(err)
	}
	commit(t, b, map[state.VolumeID]*state.Volume{"next": &next})
}

// A new journal needs room for its first keys: with fewer pages free, it either is not made, or
// is whole when there is room.
func TestANewJournalWithTooLittleRoom(t *testing.T) {
	made := 0
	for pages := range 24 {
		dir := smallDisk(t, 1<<20)
		rest := filepath.Join(dir, "rest")
		fill(t, rest)
		st, err := os.Stat(rest)
		must(t, err)
		must(t, os.Truncate(rest, st.Size()-int64(pages*os.Getpagesize())))
		path := filepath.Join(dir, "state.db")
		b, err := OpenBolt(path)
		if err == nil {
			made++
		} else {
			must(t, os.Remove(rest))
			b = openBolt(t, path)
		}
		_ = os.Remove(rest)
		v := sample("v")
		commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
		must(t, b.Close())
		b = openBolt(t, path)
		if got, err := b.Load(t.Context()); err != nil || len(got.Volumes) != 1 || b.Recovery().Lost() {
			t.Errorf("%d pages: %d records, %v, recovery %+v", pages, len(got.Volumes), err, b.Recovery())
		}
	}
	if made == 0 || made == 24 {
		t.Errorf("%d of 24 journals were made", made)
	}
}

// Other programs fill the disk while the journal writes.
func TestADiskThatFillsUpInTheMiddle(t *testing.T) {
	dir := smallDisk(t, 16<<20)
	b, err := OpenBolt(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	v := sample("v")
	commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
	fill(t, filepath.Join(dir, "rest"))
	if err := os.Truncate(filepath.Join(dir, "rest"), 12<<20); err != nil { // enough to begin the write, not for all of it
		t.Fatal(err)
	}
	large := map[string][]byte{"k": make([]byte, 15<<20)}
	if err := b.CommitBucket(t.Context(), "objects", large); !errors.Is(err, state.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	commit(t, b, map[state.VolumeID]*state.Volume{"v": nil})
}

// A daemon that is restarted on a full disk opens its journal and ends what was begun. Its lock
// file may be empty: a start was cut off, or another program took the page that it lost.
func TestARestartOnAFullDisk(t *testing.T) {
	for _, emptied := range []bool{false, true} {
		dir := smallDisk(t, 4<<20)
		path := filepath.Join(dir, "state.db")
		b, err := OpenBolt(path)
		must(t, err)
		v, w := sample("v"), sample("w")
		commit(t, b, map[state.VolumeID]*state.Volume{"v": &v, "w": &w})
		must(t, b.Close())
		if emptied {
			must(t, os.Truncate(path+".lock", 0))
		}
		fill(t, filepath.Join(dir, "rest"))
		for _, id := range []state.VolumeID{"v", "w"} {
			if b, err = OpenBolt(path); err != nil {
				t.Fatalf("lock file emptied %v: %v", emptied, err)
			}
			commit(t, b, map[state.VolumeID]*state.Volume{id: nil})
			must(t, b.Close())
			fill(t, filepath.Join(dir, "more"+string(id)))
		}
	}
}

// The reserve comes after the file, however large that is: a disk that has less free than the file is long gives part.
func TestTheReserveOfALargeJournal(t *testing.T) {
	dir := smallDisk(t, 24<<20)
	path := filepath.Join(dir, "state.db")
	b, err := OpenBolt(path)
	must(t, err)
	must(t, b.CommitBucket(t.Context(), "objects", map[string][]byte{"k": make([]byte, 7<<20)}))
	must(t, b.Close())
	must(t, os.Remove(path+spareSuffix))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	info, err := f.Stat()
	must(t, err)
	must(t, f.Truncate(info.Size())) // gives the reserve back
	var disk unix.Statfs_t
	must(t, unix.Statfs(dir, &disk))
	free := int64(disk.Bavail)*int64(disk.Bsize) - info.Size()/2
	must(t, os.WriteFile(filepath.Join(dir, "rest"), make([]byte, free), 0o600))
	reserving := &Bolt{path: path}
	reserving.keepRoom()
	var is unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &is))
	if reserved := is.Blocks*512 - info.Size(); reserved < info.Size()/8 {
		t.Errorf("%d bytes of %d are free, and %d are reserved", info.Size()/2, info.Size(), reserved)
	}
}
