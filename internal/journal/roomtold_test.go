package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Room agrees with what the journal does at every level of the disk, and names the directory and the command that
// shows its disk. It ends with the cause, although no write comes.
//
// Faults: A053.
func TestRoomSaysWhatTheJournalDoes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	refused := 0
	for level := range 12 {
		dir := smallDisk(t, 12<<20)
		b := openBolt(t, filepath.Join(dir, "state.db"))
		must(t, b.Spare(t.Context()))
		must(t, b.CommitBucket(t.Context(), "objects", map[string][]byte{"old": []byte("x")}))
		b.writer.Wait() // it reserves room and makes the spare copy after the answer
		rest := filepath.Join(dir, "rest")
		fill(t, rest)
		st, err := os.Stat(rest)
		must(t, err)
		must(t, os.Truncate(rest, max(0, st.Size()-random.Int64N(400)*4096)))

		told := b.Room()
		err = b.CommitBucket(t.Context(), "objects", map[string][]byte{fmt.Sprint(level): []byte("x")})
		if (told == nil) != (err == nil) {
			t.Errorf("level %d: Room says %v, and a new object gets %v", level, told, err)
		}
		for _, err := range []error{told, err} {
			if err == nil {
				continue
			}
			refused++
			if text := err.Error(); !errors.Is(err, state.ErrFull) || !strings.HasSuffix(text, "look with: df -h "+dir) {
				t.Errorf("level %d: %s", level, text)
			}
		}
		b.writer.Wait()
		must(t, os.Remove(rest))
		if err := b.Room(); err != nil {
			t.Errorf("level %d: with room again: %v", level, err)
		}
		must(t, b.Close())
	}
	if refused == 0 || refused == 24 {
		t.Errorf("%d of 24 answers are refusals: the levels show one side only", refused)
	}
}

// A write that failed for another reason than too little room on the disk, as for a quota, is repeated by the
// question: it ends when the write succeeds.
func TestRoomRepeatsAWriteThatFailed(t *testing.T) {
	dir := smallDisk(t, 16<<20)
	b := openBolt(t, filepath.Join(dir, "state.db"))
	defer b.Close()
	b.mu.Lock()
	b.refused = b.refusal(fmt.Errorf("%w: %w", state.ErrFull, unix.EDQUOT))
	b.mu.Unlock()
	must(t, b.Room())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused != nil {
		t.Errorf("after a write that succeeded: %v", b.refused)
	}
}

// A spare copy that the disk had no room for is made when the disk has room and someone asks.
func TestTheSpareCopyIsMadeWhenThereIsRoom(t *testing.T) {
	dir := smallDisk(t, 16<<20)
	b := openBolt(t, filepath.Join(dir, "state.db"))
	defer b.Close()
	must(t, b.CommitBucket(t.Context(), "objects", map[string][]byte{"k": make([]byte, 2<<20)}))
	fill(t, filepath.Join(dir, "rest"))
	b.copySpare()
	if err := b.SpareErr(); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	must(t, os.Remove(filepath.Join(dir, "rest")))
	must(t, b.SpareErr())
}

// A file system that turned read-only is told: by the first write on a kernel whose statfs hides it.
func TestRoomOfADiskThatTurnedReadOnly(t *testing.T) {
	dir, device := ext4Disk(t)
	b := openBolt(t, filepath.Join(dir, "state.db"))
	defer b.Close()
	must(t, b.Room())
	must(t, os.WriteFile("/sys/fs/ext4/"+filepath.Base(device)+"/trigger_fs_error", []byte("test"), 0o600))
	if err := b.CommitBucket(t.Context(), "objects", map[string][]byte{"k": []byte("x")}); !errors.Is(err, unix.EROFS) {
		t.Fatalf("got %v, want EROFS", err)
	}
	err := b.Room()
	if err == nil || !errors.Is(err, unix.EROFS) || !strings.HasSuffix(err.Error(), "look with: findmnt -T "+dir) {
		t.Errorf("got %v", err)
	}
}

// ext4Disk returns a directory on an ext4 of its own that turns read-only at an error, and its device.
func ext4Disk(t *testing.T) (dir, device string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, 32<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", file).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v %s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() { exec.Command("losetup", "--detach", device).Run() })
	context, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	must(t, err)
	defer unix.Close(context)
	must(t, errors.Join(unix.FsconfigSetString(context, "source", device),
		unix.FsconfigSetString(context, "errors", "remount-ro"), unix.FsconfigCreate(context)))
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fmt.Sprintf("/proc/self/fd/%d", fd), device
}
