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

// longTemp is the longest TMPDIR below which the sockets of a test, with its
// name and that of a driver, fit into an address (107 bytes).
const longTemp = 24

// inside marks a test binary that runs in a mount namespace of its own.
const inside = "CSI_VOLMGR_TEST_NAMESPACE"

// Main runs the tests of m in a private mount namespace and exits; to be called
// from TestMain. See [Enter].
func Main(m *testing.M) {
	Enter()
	os.Exit(m.Run())
}

// Enter returns in a process whose mount namespace is its own, so that no mount
// of a test reaches the machine and none outlives it: the test binary runs
// itself again, and the process that called first ends with it. That takes root;
// without it Enter fails and says so. Neither a long TMPDIR nor the umask of
// who runs the tests matters inside.
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
	// The child gets the terminal's signals too; it decides when to end.
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
