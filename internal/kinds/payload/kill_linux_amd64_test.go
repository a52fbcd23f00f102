package payload_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/payload"
)

// writeHere is an environment variable of the test binary: the volume to write to.
const writeHere = "PAYLOAD_TEST_WRITE"

// marker is an argument of getpgid(2) that is no process: it tells the child's tracer
// that the write begins.
const marker = 0x5eed5eed

var (
	before = payload.Files{"a": text("old"), "d/b": text("old"), "gone": text("old")}
	after  = payload.Files{"a": text("new"), "d/b": text("new"), "d/c": text("new"), "more": text("new")}
)

// changing are the system calls that change something, or open a file to do so.
var changing = []uint64{
	unix.SYS_MKDIRAT, unix.SYS_OPENAT2, unix.SYS_WRITE, unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FCHMODAT,
	unix.SYS_FSYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYMLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT,
}

// TestWriteForTheOneWhoKills is the child of the test below; by itself it does nothing.
func TestWriteForTheOneWhoKills(t *testing.T) {
	path := os.Getenv(writeHere)
	if path == "" {
		return
	}
	v := &volume{t: t, path: path, now: hourly()}
	if _, err := unix.Getpgid(marker); err == nil {
		t.Fatal("there is such a process")
	}
	v.must(after, true)
}

// TestKilledAtEverySystemCall kills the writer with SIGKILL before each of its changing
// system calls: a reader finds the old version or the new one, and the next write
// removes what the interrupted one left.
// Items: L15, L04.
func TestKilledAtEverySystemCall(t *testing.T) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	kills, old := 0, 0
	for n := 1; ; n++ {
		v := newVolume(t)
		v.must(before, true)
		tr := writeUntil(t, v.path, n)
		if tr.killed == "" {
			break
		}
		name := tr.killed
		kills++
		found := map[string]string{}
		for p := range map[string]bool{"a": true, "d/b": true} {
			data, err := os.ReadFile(filepath.Join(v.path, p))
			if err != nil {
				t.Errorf("killed before call %d (%s): %v", n, name, err)
			}
			found[string(data)] = p
		}
		if len(found) != 1 {
			t.Errorf("killed before call %d (%s): found %q", n, name, found)
		}
		if _, is := found["old"]; is {
			old++
		}
		if n%2 == 0 {
			v.sweep() // like the next start, before anything changes
		}
		if _, err := v.write(t.Context(), after, nil); err != nil {
			t.Errorf("killed before call %d (%s), then written: %v", n, name, err)
		}
		v.want(after)
		v.sweep()
		if got, want := v.names(), []string{v.readlink("..data"), "..data", "a", "d", "more"}; !slices.Equal(got, want) {
			t.Errorf("killed before call %d (%s): entries %q, want %q", n, name, got, want)
		}
	}
	if old == 0 || old == kills {
		t.Errorf("killed %d times, the old version was there %d times: the switch was not passed", kills, old)
	}
	t.Logf("killed at %d system calls; after %d of them the old version was there", kills, old)
}

// TestContentIsDurableBeforeTheSwitch: on a file system with storage, each file is
// synced before ..data leads to it. A tmpfs has nothing to sync to. (The writer treats
// a ramfs like a disk.)
// Items: L15.
func TestContentIsDurableBeforeTheSwitch(t *testing.T) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	for fsType, want := range map[string]int{"ramfs": len(after), "tmpfs": 0} {
		v := newVolumeOn(t, fsType)
		v.must(before, true)
		made := writeUntil(t, v.path, math.MaxInt).made
		switched := slices.Index(made, unix.SYS_RENAMEAT)
		if switched < 0 {
			t.Fatalf("%s: nothing was switched: %v", fsType, made)
		}
		synced := 0
		for _, call := range made[:switched] {
			if call == unix.SYS_FSYNC {
				synced++
			}
		}
		if synced != want {
			t.Errorf("%s: %d files are synced before the switch, want %d", fsType, synced, want)
		}
	}
}

// writeUntil starts a child that writes to path and kills it before its nth changing
// system call, if it makes that many.
func writeUntil(t *testing.T, path string, n int) *tracer {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWriteForTheOneWhoKills$", "-test.count=1")
	cmd.Env = append(os.Environ(), writeHere+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tr := &tracer{pid: cmd.Process.Pid, n: n, entered: map[int]bool{}, known: map[int]bool{}}
	for {
		var ws syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &ws, unix.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if ws.Exited() || ws.Signaled() {
			if tid != tr.pid {
				continue // a thread
			}
			if tr.killed == "" && ws.ExitStatus() != 0 {
				t.Fatalf("the child failed: %v", ws)
			}
			return tr
		}
		// ESRCH: the process is dying and needs no continuation.
		if err := syscall.PtraceSyscall(tid, tr.stopped(tid, ws)); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
}

// tracer counts the system calls of one process.
type tracer struct {
	pid, n         int
	known, entered map[int]bool // by thread: seen before; between entry and exit of a call
	armed          bool
	made           []uint64 // the changing calls, by number
	killed         string   // the call before which it was killed, or ""
}

// stopped handles the stop of a thread and returns the signal to deliver.
func (tr *tracer) stopped(tid int, ws syscall.WaitStatus) (signal int) {
	first := !tr.known[tid]
	tr.known[tid] = true
	switch sig := ws.StopSignal(); {
	case sig == syscall.SIGTRAP|0x80:
		if tr.entered[tid] = !tr.entered[tid]; tr.entered[tid] {
			tr.call(tid)
		}
	case first && tid == tr.pid: // after its exec
		_ = syscall.PtraceSetOptions(tid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL)
	case first && sig == syscall.SIGSTOP, sig == syscall.SIGTRAP: // a new thread, or the event of its creation
	default:
		return int(sig)
	}
	return 0
}

// call handles the system call that a thread is about to make.
func (tr *tracer) call(tid int) {
	var regs syscall.PtraceRegs
	if tr.killed != "" || syscall.PtraceGetRegs(tid, &regs) != nil {
		return
	}
	if regs.Orig_rax == unix.SYS_GETPGID && regs.Rdi == marker {
		tr.armed = true
	}
	if !tr.armed || !slices.Contains(changing, regs.Orig_rax) {
		return
	}
	tr.made = append(tr.made, regs.Orig_rax)
	if tr.n--; tr.n == 0 {
		tr.killed = fmt.Sprint("system call ", regs.Orig_rax)
		_ = syscall.Kill(tr.pid, syscall.SIGKILL)
	}
}
