package drivertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// longTemp is the longest TMPDIR below which a test's sockets, with the names of the
// test and of a driver, fit into a socket address (107 bytes).
const longTemp = 24

// inside marks a test binary that runs in its own mount namespace.
const inside = "CSI_VOLMGR_TEST_NAMESPACE"

// Main runs the tests of m in a private mount namespace and exits. Call it from
// TestMain. See [Enter].
func Main(m *testing.M) {
	Enter()
	os.Exit(m.Run())
}

// Enter returns in a process with its own mount namespace, so that no mount of a test
// affects the machine or outlives the test. The test binary runs itself again, and the
// first process exits when the second one does. Enter needs root; otherwise it fails
// with a message. The second process has a short TMPDIR and the umask 022.
func Enter() {
	if os.Getenv(inside) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fatal("make the mounts of the test's namespace private", err)
		}
		unix.Umask(0o022)
		return
	}
	if os.Geteuid() != 0 {
		fatal("these tests mount and chown, which only root may: run them as root", os.ErrPermission)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	if len(os.TempDir()) > longTemp {
		cmd.Env = append(cmd.Env, "TMPDIR=/tmp")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	// The child also gets the terminal's signals and decides when to exit.
	signal.Ignore(os.Interrupt)
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(max(1, exit.ExitCode()))
	}
	if err != nil {
		fatal("run the tests in a mount namespace of their own", err)
	}
	os.Exit(0)
}

func fatal(what string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	os.Exit(1)
}
