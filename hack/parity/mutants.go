package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// mutant removes a behaviour: in File, Old is replaced by New, and
// Test of the package Dir, which claims Item, must fail.
type mutant struct {
	Item, File, Old, New, Dir, Test string
}

// staleMutants lists the mutants that can no longer be planted: the text is not found
// exactly once, or the test does not claim the item.
func staleMutants(root string, list []mutant, claims map[string][]items.Claim) (problems []string) {
	for _, m := range list {
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
		if err != nil {
			problems = append(problems, fmt.Sprintf("mutant of %s: %v", m.Item, err))
			continue
		}
		if n := strings.Count(string(src), m.Old); n != 1 {
			problems = append(problems, fmt.Sprintf("mutant of %s: %s has %q %d times, want once", m.Item, m.File, m.Old, n))
		}
		if !slices.ContainsFunc(claims[m.Item], func(c items.Claim) bool { return c.Dir == m.Dir && c.Test == m.Test }) {
			problems = append(problems, fmt.Sprintf("mutant of %s: %s %s does not claim it", m.Item, m.Dir, m.Test))
		}
	}
	return problems
}

// plantMutants plants each mutant, runs its test, and returns the mutants that survive.
func plantMutants(ctx context.Context, root string, list []mutant, out io.Writer) (problems []string, err error) {
	dir, err := os.MkdirTemp("", "parity-mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for _, m := range list {
		overlay, err := m.overlay(root, dir)
		if err != nil {
			return nil, fmt.Errorf("mutant of %s: %w", m.Item, err)
		}
		verdict := m.verdict(ctx, root, overlay)
		fmt.Fprintf(out, "%-6s %-8s %s: %s %s\n", m.Item, verdict, m.File, m.Dir, m.Test)
		if verdict != killed {
			problems = append(problems, fmt.Sprintf("mutant of %s in %s: %s %s: %s", m.Item, m.File, m.Dir, m.Test, verdict))
		}
	}
	return problems, nil
}

// The possible fates of a mutant.
const (
	killed = "killed"
	lives  = "lives"
	broken = "broken" // it does not build, or its test did not run
)

// overlay writes the file of `go test -overlay` that plants m, and returns its name.
func (m mutant) overlay(root, dir string) (string, error) {
	file, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return "", err
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	planted := filepath.Join(dir, "planted.go")
	if err := os.WriteFile(planted, []byte(strings.Replace(string(src), m.Old, m.New, 1)), 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {file: planted}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// verdict runs the test of m. Only a test that ran and failed kills a mutant: a mutant
// that does not build shows nothing.
func (m mutant) verdict(ctx context.Context, root, overlay string) string {
	results, _ := runTests(ctx, root, m.Dir, []string{m.Test}, "-vet=off", "-overlay="+overlay)
	switch results[m.Test] {
	case "fail":
		return killed
	case "pass":
		return lives
	}
	return broken
}

// runTests runs tests of one package and returns the result of each by name:
// "pass", "fail" or "skip", or nothing if it did not run.
func runTests(ctx context.Context, root, dir string, tests []string, flags ...string) (map[string]string, error) {
	args := append([]string{"test", "-json", "-timeout=5m", "-run=" + pattern(tests)}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(root, filepath.FromSlash(dir))
	out, err := cmd.Output()
	results := map[string]string{}
	for line := range strings.Lines(string(out)) {
		var e struct{ Action, Test string }
		if json.Unmarshal([]byte(line), &e) != nil || e.Test == "" {
			continue
		}
		if slices.Contains([]string{"pass", "fail", "skip"}, e.Action) && results[e.Test] != "fail" {
			results[e.Test] = e.Action
		}
		if e.Action == "skip" { // a test with a skipped part does not count as passed
			top, _, _ := strings.Cut(e.Test, "/")
			results[top+skipped] = e.Test
		}
	}
	return results, err
}

// skipped is appended to the name of a test with a skipped part.
const skipped = " skipped"

// pattern returns a pattern that matches the tests by their whole names.
func pattern(tests []string) string {
	var whole []string
	for _, t := range tests {
		top, _, _ := strings.Cut(t, "/")
		whole = append(whole, top)
	}
	slices.Sort(whole)
	return "^(" + strings.Join(slices.Compact(whole), "|") + ")$"
}
