package door

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

const root = "../.."

// outside is the directory of the foreign module.
var outside string

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(dir string) error {
		outside = filepath.Join(dir, "door")
		_, err := harness.Build(filepath.Join(dir, "driver"), "examples/driver")
		return errors.Join(err, writeModule(outside))
	}))
}

// writeModule makes the module: the requirements are the agent's, and so are the sums.
func writeModule(dir string) error {
	for to, from := range map[string]string{
		"agent/": "examples/agent/*.go", "embed/": "examples/embed/*.go", "own/": "test/door/testdata/own/*.go",
		"": "examples/agent/go.*",
	} {
		names, err := filepath.Glob(filepath.Join(root, from))
		if err != nil || len(names) == 0 {
			return fmt.Errorf("%s: found %q, %w", from, names, err)
		}
		if err := os.MkdirAll(filepath.Join(dir, to), 0o755); err != nil {
			return err
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, to, filepath.Base(name)), b, 0o644); err != nil {
				return err
			}
		}
	}
	here, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	edit := exec.Command("go", "mod", "edit", "-module=example.org/door", "-replace="+harness.Module+"="+here)
	edit.Dir = dir
	if out, err := edit.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// in runs go in the foreign module.
func in(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = outside, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The examples, which docs/embed.md quotes, are programs that others could have written.
func TestOthersCanBuildTheExamples(t *testing.T) {
	if out, err := in(t.Context(), "vet", "./..."); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// What Go forbids them is forbidden here, too.
	dir := filepath.Join(outside, "inside")
	const text = "package main\n\nimport \"" + harness.Module + "/internal/wire\"\n\nfunc main() { _ = wire.Config{} }\n"
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	if out, err := in(t.Context(), "build", "./inside"); err == nil || !strings.Contains(out, "use of internal package") {
		t.Errorf("a program of others imports internal/wire: %v\n%s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// A program with a manager, kinds and drivers of its own gives a pod volumes and takes them away.
func TestOthersCanMakeAManagerOfTheirOwn(t *testing.T) {
	program, place := filepath.Join(outside, "bin-own"), t.TempDir()
	if out, err := in(t.Context(), "build", "-o", program, "./own"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	harness.Start(t, filepath.Join(place, "driver.log"),
		exec.Command(filepath.Join(filepath.Dir(outside), "driver"), "-root", filepath.Join(place, "root")))
	r := harness.Run(t, "", program, filepath.Join(place, "root"), "memory.example.com")
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if r.Code != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], "disk "+place) || !strings.HasPrefix(lines[1], "scratch "+place) ||
		lines[2] != "left: 0 translated: true" {
		t.Fatalf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, line := range lines[:2] {
		_, path, _ := strings.Cut(line, " ")
		if err := unix.Access(path, unix.F_OK); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}
