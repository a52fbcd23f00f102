package tenants

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// program is the path of csi-volmgr, and daemon the one to run as a daemon: with the race detector if the suite has it.
var program, daemon string

func TestMain(m *testing.M) { os.Exit(harness.Main(m, prepare)) }

func prepare(dir string) (err error) {
	if program, err = harness.Build(filepath.Join(dir, "csi-volmgr"), "cmd/csi-volmgr"); err != nil {
		return err
	}
	daemon = program
	if raced := harness.Raced(); raced != nil {
		daemon, err = harness.Build(filepath.Join(dir, "csi-volmgr-race"), "cmd/csi-volmgr", raced...)
	}
	return err
}
