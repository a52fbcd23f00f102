package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// program and strict are the paths of csi-volmgr and of the strict driver, built for these
// tests; before is that of the csi-volmgr of UPGRADE_FROM, a commit or tag, or "".
var program, strict, before string

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(dir string) (err error) {
		if program, err = harness.Build(filepath.Join(dir, "csi-volmgr"), "cmd/csi-volmgr", harness.Raced()...); err != nil {
			return err
		}
		if strict, err = harness.Build(filepath.Join(dir, "csi-strict"), "test/csi-strict/cmd"); err != nil {
			return err
		}
		if revision := os.Getenv("UPGRADE_FROM"); revision != "" {
			before, err = buildBefore(dir, revision)
		}
		return err
	}))
}

// buildBefore builds the program of a commit or tag of this repository below dir.
func buildBefore(dir, revision string) (binary string, err error) {
	tree, archive := filepath.Join(dir, "tree"), filepath.Join(dir, "before.tar")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "csi-volmgr-before")
	for _, args := range [][]string{
		{"git", "-C", "../..", "archive", "--output", archive, revision},
		{"tar", "-x", "-C", tree, "-f", archive},
		{"go", "build", "-C", tree, "-o", binary, "./cmd/csi-volmgr"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("UPGRADE_FROM=%s: %q: %w\n%s", revision, args, err, out)
		}
	}
	return binary, nil
}
