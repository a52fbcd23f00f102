package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
)

// The command finds the calls of its version alone, and paths are opened with and without openat2.
func TestACommandFindsTheCallsOfItsVersion(t *testing.T) {
	if os.Getenv("OLD_KERNEL_CHILD") != "" {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
		_, direct := unix.Openat2(unix.AT_FDCWD, ".", &how)
		_, ours := beneath.Open(unix.AT_FDCWD, ".", &how)
		fmt.Printf("openat2: %v, ours: %v\n", direct, ours)
		return
	}
	program := filepath.Join(t.TempDir(), "oldkernel")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for version, want := range map[string]error{"4.18": unix.ENOSYS, "5.4": unix.ENOSYS, "filtered": unix.EPERM, "5.10": nil} {
		if want == nil {
			if _, err := unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{Flags: unix.O_PATH}); errors.Is(err, unix.ENOSYS) {
				continue // this kernel is older
			}
		}
		cmd := exec.Command(program, version, os.Args[0], "-test.run=^TestACommandFindsTheCallsOfItsVersion$")
		cmd.Env = append(os.Environ(), "OLD_KERNEL_CHILD=1")
		out, err := cmd.CombinedOutput()
		if line := fmt.Sprintf("openat2: %v, ours: <nil>\n", want); err != nil || !strings.Contains(string(out), line) {
			t.Errorf("%s: %v, %q, want %q", version, err, out, line)
		}
	}
}
