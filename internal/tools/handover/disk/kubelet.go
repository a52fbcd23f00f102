package disk

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The defaults of a kubelet's --root-dir and healthzPort.
const (
	defaultRoot    = "/var/lib/kubelet"
	defaultHealthz = "127.0.0.1:10248"
)

// Host is where to look for a kubelet; the zero value is this machine.
type Host struct {
	// Proc is the mount point of proc(5); "" means /proc.
	Proc string
	// Healthz is where a kubelet with the default root directory serves its health; "" means
	// 127.0.0.1:10248.
	Healthz string
}

// ErrKubelet means that a kubelet runs on the root directory.
var ErrKubelet = errors.New("a kubelet runs on this root directory")

// Serving returns the socket below the root directory at which a kubelet answers, or "". Every
// running kubelet serves one.
func Serving(root string) string {
	for _, s := range []string{"pod-resources/kubelet.sock", "device-plugins/kubelet.sock"} {
		if path := filepath.Join(root, s); connects("unix", path) {
			return path
		}
	}
	return ""
}

// Kubelet returns evidence that a kubelet runs on the root directory, or "": it answers at a socket
// below it; a process named kubelet has it as its root directory; or, for the default root
// directory, something answers at the kubelet's health address.
func (h Host) Kubelet(root string) (string, error) {
	if path := Serving(root); path != "" {
		return "it answers at " + path, nil
	}
	proc := h.Proc
	if proc == "" {
		proc = "/proc"
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return "", fmt.Errorf("look for a kubelet: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != "kubelet" {
			continue // exited, or another program
		}
		line, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if err == nil && sameDir(rootOf(line), root) {
			return "process " + e.Name() + " is a kubelet", nil
		}
	}
	address := h.Healthz
	if address == "" {
		address = defaultHealthz
	}
	if sameDir(root, defaultRoot) && connects("tcp", address) {
		return "something answers at " + address + ", a kubelet's health address", nil
	}
	return "", nil
}

func connects(network, address string) bool {
	c, err := net.Dial(network, address)
	if err != nil {
		return false
	}
	_ = c.Close() // nothing was sent
	return true
}

// rootOf returns the root directory from a kubelet's command line.
func rootOf(cmdline []byte) string {
	args := bytes.Split(cmdline, []byte{0})
	for i, a := range args {
		name, value, ok := strings.Cut(strings.TrimLeft(string(a), "-"), "=")
		switch {
		case name != "root-dir":
		case ok:
			return value
		case i+1 < len(args):
			return string(args[i+1])
		}
	}
	return defaultRoot
}

// sameDir reports whether two paths are the same directory.
func sameDir(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
