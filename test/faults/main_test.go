package faults

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// program and strict are the paths of csi-volmgr and of the strict driver, built for these
// tests.
var program, strict string

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(dir string) (err error) {
		if program, err = harness.Build(filepath.Join(dir, "csi-volmgr"), "cmd/csi-volmgr", harness.Raced()...); err != nil {
			return err
		}
		strict, err = harness.Build(filepath.Join(dir, "csi-strict"), "test/csi-strict/cmd")
		return err
	}))
}
