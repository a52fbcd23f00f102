package file

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// inNamespace marks the run of the tests in a mount namespace of their own.
const inNamespace = "CSI_VOLMGR_TEST_NAMESPACE"

// TestMain runs the tests in a private mount namespace, so that no other process sees their mounts, and the mounts
// end with them.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) == "" {
		os.Exit(again())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "make mounts private:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func again() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests mount, in a mount namespace of their own, and need root for that:", err)
		return 1
	}
	return 0
}
