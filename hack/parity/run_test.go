package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// small is the directory of a module with a behaviour and tests of it.
func small(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module small\n\ngo 1.26\n",
		"x.go":   "package small\n\nfunc two() int { return 2 }\n",
		"x_test.go": `package small

import "testing"

func TestTwo(t *testing.T)  { if two() != 2 { t.Error("not two") } }
func TestNone(t *testing.T) {}
func TestSkip(t *testing.T) { t.Skip("no tool") }
func TestPart(t *testing.T) { t.Run("a", func(t *testing.T) { t.Skip("no tool") }) }
`,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// A mutant is killed by a test that fails, and not by one that passes, does not exist or
// does not build.
func TestMutantsArePlanted(t *testing.T) {
	m := mutant{Item: "A01", File: "x.go", Old: "return 2", New: "return 3", Dir: ".", Test: "TestTwo"}
	lazy, gone, wrong := m, m, m
	lazy.Test, gone.Test, wrong.New = "TestNone", "TestGone", "return x"
	problems, err := plantMutants(t.Context(), small(t), []mutant{m, lazy, gone, wrong}, io.Discard)
	want := []string{
		"mutant of A01 in x.go: . TestNone: lives", "mutant of A01 in x.go: . TestGone: broken",
		"mutant of A01 in x.go: . TestTwo: broken",
	}
	if err != nil || strings.Join(problems, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, %v, want %q", problems, err, want)
	}
}

// The tests that items cite are run, and each test that shows nothing is reported.
func TestCitedTestsAreRun(t *testing.T) {
	claims := map[string][]items.Claim{}
	var list []items.Item
	for id, test := range map[string]string{"A01": "TestTwo", "A02": "TestSkip", "A03": "TestPart", "A04": "TestGone"} {
		claims[id] = []items.Claim{{Dir: ".", Test: test}}
		list = append(list, items.Item{ID: id, Title: test})
	}
	var out strings.Builder
	got := map[string]bool{}
	for _, problem := range runCited(t.Context(), small(t), compare(list, claims, nil), claims, &out) {
		got[problem] = true
	}
	want := map[string]bool{
		"A02: . TestSkip: skip": true, "A03: . TestPart: skip of TestPart/a": true, "A04: . TestGone: not run": true,
	}
	if !maps.Equal(got, want) || !strings.Contains(out.String(), "pass\n") {
		t.Errorf("%v, want %v; printed %s", got, want, out.String())
	}
}

// An item with tests that other targets run is not reported as passed.
func TestTestsApartAreNamed(t *testing.T) {
	const here, guest, docker = "pkg/x TestX", "test/vm/guest TestY", "test/docker TestZ"
	became := map[string]string{here: "pass"}
	for _, c := range []struct {
		tests []string
		part  string
		want  string
	}{
		{[]string{here}, "", "pass"},
		{[]string{here}, "half", "part"},
		{[]string{here, guest}, "", "pass; more by make test-vm"},
		{[]string{here, guest}, "half", "part; more by make test-vm"},
		{[]string{guest}, "", "not run here; more by make test-vm"},
		{[]string{guest, docker, guest}, "", "not run here; more by make test-docker, make test-vm"},
		{[]string{"pkg/x TestGone", guest}, "", "FAIL"},
		{nil, "", ""},
	} {
		if got, _ := (line{tests: c.tests, part: c.part}).verdict(became); got != c.want {
			t.Errorf("%q, part %q: %q, want %q", c.tests, c.part, got, c.want)
		}
	}
}
