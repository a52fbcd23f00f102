// Program oldkernel plays an older kernel for a command: oldkernel VERSION COMMAND ARGUMENTS...
//
// A seccomp filter answers every system call that is newer than the version with ENOSYS, for the command and all
// that it starts; version "filtered" is a container engine that answers EPERM. Newer flags, options and fields of older
// calls stay. The command finds the version in OLD_KERNEL. Needs root. As a test's runner:
//
//	go test -exec "bin/oldkernel 4.18" ./internal/kinds/payload
package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusal is the first system call that is refused, and the error.
type refusal struct {
	from  uint32
	error unix.Errno
}

// versions returns what each version refuses. From 424 on, the numbers are the same on each architecture but alpha.
func versions() map[string]refusal {
	return map[string]refusal{
		"4.18": {424, unix.ENOSYS}, // RHEL 8
		"5.4":  {436, unix.ENOSYS}, // Ubuntu 20.04
		"5.10": {441, unix.ENOSYS},
		"5.15": {449, unix.ENOSYS},
		"6.1":  {451, unix.ENOSYS},
		"6.6":  {454, unix.ENOSYS},
		"6.7":  {457, unix.ENOSYS},
		// A container engine whose filter knows no call after 5.5 says that they are not permitted.
		"filtered": {437, unix.EPERM},
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oldkernel:", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	if len(args) < 2 || versions()[args[0]].from == 0 {
		return fmt.Errorf("usage: oldkernel VERSION COMMAND ARGUMENTS..., with one of %s",
			strings.Join(slices.Sorted(maps.Keys(versions())), ", "))
	}
	program, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the filter is this thread's, and so the command's
	if err := refuse(versions()[args[0]]); err != nil {
		return fmt.Errorf("install the filter: %w", err)
	}
	return syscall.Exec(program, args[1:], append(os.Environ(), "OLD_KERNEL="+args[0]))
}

// refuse answers system calls from a number on with an error.
func refuse(r refusal) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: r.from, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(r.error)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
