package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// program is the path of csi-volmgr. daemon is the path of the program to run as a daemon
// or driver: the same, or the one with the race detector.
var program, daemon string

// strict is the path of the strict driver if the suite runs with it.
var strict string

func TestMain(m *testing.M) {
	code := harness.Main(m, prepare)
	if strict != "" {
		fmt.Println(&verdicts)
	}
	os.Exit(code)
}

// prepare builds the programs, and tries the drivers that the tests run with.
func prepare(dir string) (err error) {
	if program, err = harness.Build(filepath.Join(dir, "csi-volmgr"), "cmd/csi-volmgr"); err != nil {
		return err
	}
	daemon = program
	if raced := harness.Raced(); raced != nil {
		if daemon, err = harness.Build(filepath.Join(dir, "csi-volmgr-race"), "cmd/csi-volmgr", raced...); err != nil {
			return err
		}
	}
	switch driver := os.Getenv("E2E_DRIVER"); driver {
	case "":
	case "strict":
		if strict, err = harness.Build(filepath.Join(dir, "csi-strict"), "test/csi-strict/cmd"); err != nil {
			return err
		}
	default:
		return fmt.Errorf("E2E_DRIVER=%s: want strict, or nothing for the local driver", driver)
	}
	for _, k := range kinds() {
		if !k.local {
			err = errors.Join(err, try(k, filepath.Join(dir, k.label)))
		}
	}
	return err
}

// start runs binary until the test ends. Its log in dir is named after the program and its
// verb.
func start(t *testing.T, dir, binary string, args ...string) *harness.Process {
	t.Helper()
	name := filepath.Base(binary)
	if verb := args[0]; !strings.HasPrefix(verb, "-") {
		name += "-" + verb
	}
	return harness.Start(t, filepath.Join(dir, name+".log"), exec.Command(binary, args...))
}
