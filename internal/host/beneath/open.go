package beneath

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Open is openat2(2), or [Walk] where the kernel has no such call (ENOSYS) or a seccomp filter hides it (EPERM; if the
// file itself is the reason, Walk finds the same).
func Open(dir int, path string, how *unix.OpenHow) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat2(dir, path, how) })
	if err == unix.ENOSYS || err == unix.EPERM {
		return Walk(dir, path, how)
	}
	return fd, err
}

func retry(f func() (int, error)) (int, error) {
	for {
		fd, err := f()
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// MountID returns the id of the mount that fd was opened on, which another mount may have later (Linux 3.15).
func MountID(fd int) (uint64, error) {
	data, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.ParseUint(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, errors.New("fdinfo has no mnt_id")
}
