package harness

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

// Module is the path of this module.
const Module = "github.com/csi-volmgr/csi-volmgr"

// Main runs the tests of a package in a private mount namespace, after prepare has
// built their programs into a directory. It returns the exit code.
func Main(m *testing.M, prepare func(dir string) error) int {
	drivertest.Enter()
	dir, err := os.MkdirTemp("", "bin-")
	if err == nil {
		err = prepare(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Build builds the program in the directory main of this module into path, and returns path.
func Build(path, main string, flags ...string) (string, error) {
	args := append([]string{"build", "-o", path}, flags...)
	cmd := exec.Command("go", append(args, Module+"/"+main)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", main, err, out)
	}
	return path, nil
}

// Raced returns the flags for a program with the race detector if E2E_RACE is set.
func Raced() []string {
	if os.Getenv("E2E_RACE") == "" {
		return nil
	}
	return []string{"-race"}
}
