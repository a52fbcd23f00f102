package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// portTaken says who has the address of metrics and the status page, and how to start without it.
func portTaken(err error, at net.Addr) error {
	return fmt.Errorf("%w%s; start this with --http-address=off, without metrics and status page, or with another "+
		"--http-address=HOST:PORT", err, listener(at))
}

// listener names the process that listens at a TCP address, for an error: " (process 7, nginx)"; "" if it cannot be
// told.
func listener(a net.Addr) string {
	at, ok := a.(*net.TCPAddr)
	if !ok {
		return ""
	}
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// sl local_address rem_address st ... uid timeout inode: state 0A listens
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", at.Port)) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	all, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && sockets[to] {
			pid := strings.Split(fd, "/")[2]
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			return fmt.Sprintf(" (process %s, %s)", pid, plain(strings.TrimSpace(string(name))))
		}
	}
	return ""
}
