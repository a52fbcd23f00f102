package benchdef

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// CountMounts counts the mounts below dir in this mount namespace.
func CountMounts(dir string) int {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return -1
	}
	dir, _ = filepath.Abs(dir)
	n := 0
	for _, l := range strings.Split(string(b), "\n") {
		f := strings.Fields(l)
		if len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			n++
		}
	}
	return n
}

// CleanMounts lazily unmounts everything below dir, deepest first.
func CleanMounts(dir string) int {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0
	}
	dir, _ = filepath.Abs(dir)
	var l []string
	for _, s := range strings.Split(string(b), "\n") {
		f := strings.Fields(s)
		if len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			l = append(l, f[4])
		}
	}
	for i := len(l) - 1; i >= 0; i-- {
		_ = syscall.Unmount(l[i], syscall.MNT_DETACH)
	}
	return len(l)
}
