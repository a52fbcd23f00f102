package isolate

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// hasAnswer reports whether a helper has sent something that the pool has not read yet.
func hasAnswer(conn *os.File) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	has := false
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		has = err == nil && n > 0
	})
	return err == nil && has
}

// runnable reports whether a thread of a process runs or waits for a processor. A call that
// hangs with its storage waits for neither.
func runnable(pid int) bool {
	stats, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil {
		return false
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the program's name, which ends with the last parenthesis.
		if at := bytes.LastIndexByte(stat, ')'); at >= 0 && bytes.HasPrefix(stat[at+1:], []byte(" R")) {
			return true
		}
	}
	return false
}
