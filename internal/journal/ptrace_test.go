// riscv64 has no renameat, and renames by renameat2 alone.
//go:build !riscv64

package journal

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An event is one thing that a process did to the files of a directory, as far as it
// matters for what a power cut may leave.
type event struct {
	// file is the inode of a write or a sync; for a sync of the directory it is dirInode.
	file uint64
	// data was written at the sector at, unless sync is set; size is the length of the file
	// from then on.
	at   int64
	data []byte
	size int64
	sync bool
	// entry is a name that referred to inode file from then on; file is 0 if the name was removed.
	entry string
	// ack is a line that the process wrote to its standard output.
	ack string
}

const dirInode = 1 // no file of a directory has it

// tracer records what a process and its threads do to a directory by system calls.
type tracer struct {
	t     *testing.T
	dir   string
	calls map[int]syscallInfo // by thread: the call that it is in
	names map[string]uint64
	files map[uint64][]byte
	log   []event
}

// syscallInfo is struct ptrace_syscall_info (linux/ptrace.h).
type syscallInfo struct {
	op   uint8
	_    [3]uint8
	_    uint32
	_, _ uint64
	// op entry: the call's number and arguments; op exit: its result
	first uint64
	args  [6]uint64
	_     [2]uint64
}

const (
	infoEntry = 1 // PTRACE_SYSCALL_INFO_ENTRY
	infoExit  = 2 // PTRACE_SYSCALL_INFO_EXIT
)

// trace runs the command until it ends and returns what it did to the directory.
func trace(t *testing.T, dir string, cmd *exec.Cmd) []event {
	t.Helper()
	runtime.LockOSThread() // ptrace requires that one thread does all of it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	must(t, cmd.Start())
	main := cmd.Process.Pid
	tr := &tracer{t: t, dir: dir, calls: map[int]syscallInfo{}, names: map[string]uint64{}, files: map[uint64][]byte{}}
	var status unix.WaitStatus
	_, err := unix.Wait4(main, &status, unix.WALL, nil)
	must(t, err)
	must(t, unix.PtraceSetOptions(main, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL))
	must(t, unix.PtraceSyscall(main, 0))
	for {
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		must(t, err)
		if status.Exited() || status.Signaled() {
			if pid == main {
				if status.ExitStatus() != 0 {
					t.Fatalf("the process ended with %d, %v", status.ExitStatus(), status.Signal())
				}
				return tr.log
			}
			continue
		}
		deliver := 0
		switch s := status.StopSignal(); {
		case s == unix.SIGTRAP|0x80:
			tr.stopped(pid)
		case s != unix.SIGTRAP && s != unix.SIGSTOP: // not those of the tracing itself
			deliver = int(s)
		}
		if err := unix.PtraceSyscall(pid, deliver); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
}

// stopped handles the start or the end of a system call.
func (tr *tracer) stopped(pid int) {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		tr.t.Fatalf("PTRACE_GET_SYSCALL_INFO: %v", errno)
	}
	if info.op == infoEntry {
		tr.calls[pid] = info
		return
	}
	call := tr.calls[pid]
	delete(tr.calls, pid)
	if info.op != infoExit || int64(info.first) < 0 { // a call that failed did nothing
		return
	}
	switch call.first {
	case unix.SYS_WRITE:
		if call.args[0] == 1 {
			tr.acked(pid, call)
			return
		}
		tr.look()
	case unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE,
		unix.SYS_OPENAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT:
		tr.look()
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		tr.synced(pid, call.args[0])
	}
}

func (tr *tracer) acked(pid int, call syscallInfo) {
	buf := make([]byte, call.args[2])
	if len(buf) == 0 {
		return
	}
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(len(buf))
	if _, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(call.args[1]), Len: len(buf)}}, 0); err != nil {
		tr.t.Fatal(err)
	}
	for line := range strings.Lines(string(buf)) {
		tr.log = append(tr.log, event{ack: strings.TrimSpace(line)})
	}
}

func (tr *tracer) synced(pid int, fd uint64) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	to, err := os.Readlink(path)
	must(tr.t, err)
	if to == tr.dir {
		tr.log = append(tr.log, event{file: dirInode, sync: true})
	} else if filepath.Dir(strings.TrimSuffix(to, " (deleted)")) == tr.dir {
		tr.log = append(tr.log, event{file: inode(tr.t, path), sync: true})
	}
}

func inode(t *testing.T, path string) uint64 {
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return st.Ino
}

// look records how the directory differs from the last look. It skips the journal's lock,
// which means nothing after a crash.
func (tr *tracer) look() {
	entries, err := os.ReadDir(tr.dir)
	must(tr.t, err)
	now := map[string]uint64{}
	for _, e := range entries {
		path := filepath.Join(tr.dir, e.Name())
		if strings.HasSuffix(path, ".lock") {
			continue
		}
		ino := inode(tr.t, path)
		now[e.Name()] = ino
		tr.written(ino, path)
	}
	for name, ino := range now { // new names first: a rename leaves one or both names
		if tr.names[name] != ino {
			tr.log = append(tr.log, event{entry: name, file: ino})
		}
	}
	for name := range tr.names {
		if now[name] == 0 {
			tr.log = append(tr.log, event{entry: name})
		}
	}
	tr.names = now
}

// written records the sectors of a file that have changed.
func (tr *tracer) written(ino uint64, path string) {
	is, err := os.ReadFile(path)
	must(tr.t, err)
	was, known := tr.files[ino]
	if known && bytes.Equal(was, is) {
		return
	}
	tr.files[ino] = is
	size := int64(len(is))
	for at := int64(0); at*sector < size; at++ {
		data := is[at*sector : min((at+1)*sector, size)]
		if end := min((at+1)*sector, int64(len(was))); at*sector >= end || !bytes.Equal(data, was[at*sector:end]) {
			tr.log = append(tr.log, event{file: ino, at: at, data: slices.Clone(data), size: size})
		}
	}
	if size < int64(len(was)) {
		tr.log = append(tr.log, event{file: ino, at: -1, size: size})
	}
}
