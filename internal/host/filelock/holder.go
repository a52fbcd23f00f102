package filelock

import (
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder says, as a piece of a sentence, which process holds the lock of the file at path, and the command that stops
// it: " (process 7); stop it with: kill 7". It is "" if the kernel does not show that process here.
func Holder(file string) string {
	var st unix.Stat_t
	if unix.Stat(file, &st) != nil {
		return ""
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK ADVISORY WRITE 7 08:02:1234 0 EOF
		if f := strings.Fields(line); len(f) > 5 && f[1] == "FLOCK" && f[5] == id && f[4] != "0" && f[4] != "-1" {
			return fmt.Sprintf(" (process %s); stop it with: %s", f[4], stop(f[4]))
		}
	}
	return ""
}

// stop returns the command that ends a process: a service manager would start a service that is only killed again.
func stop(pid string) string {
	groups, _ := os.ReadFile("/proc/" + pid + "/cgroup")
	if unit := path.Base(strings.TrimSpace(string(groups))); strings.HasSuffix(unit, ".service") {
		return "systemctl stop " + unit
	}
	return "kill " + pid
}
