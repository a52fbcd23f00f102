package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// Each case that the catalogue names is of a line of it, and each line has a case.
func TestCasesOfSidecarsHaveALine(t *testing.T) {
	named, err := items.SidecarCases()
	if err != nil {
		t.Fatal(err)
	}
	with := map[string]bool{}
	for _, id := range named {
		with[id] = true
	}
	for _, i := range items.Catalog(items.Sidecars) {
		if !with[i.ID] {
			t.Errorf("%s: no case has it", i.ID)
		}
		delete(with, i.ID)
	}
	for id := range with {
		t.Errorf("cases of %s, which is in no list", id)
	}
}

func TestCasesOfSidecarsAreRead(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"cmd/main.go": "package main\nvar a = flag.Bool(\"x-y\", false, \"\")\nfunc init() { flag.Var(v, \"z\", \"\"); flag.Parse() }\n",
		"pkg/a.go": "package a\nconst c = \"a.storage.k8s.io/b\"\nfunc f() { r.Eventf(o, \"Warning\", \"Failed\", \"%s\") }\n" +
			"var u = \"https://k8s.io/x\"\n",
		"pkg/a_test.go": "package a\nfunc TestA(t *testing.T) {\n\tfor k, v := range map[string]struct{ p map[string]x }{\n" +
			"\t\t\"one\": {p: map[string]x{\"no case\": {}}}, \"two\": {},\n\t} {}\n}\n" +
			"func TestB(t *testing.T) {}\nfunc TestMain(m *testing.M) {}\n" +
			"func TestC(t *testing.T) { _ = []c{{name: \"three  lines\", of: []d{{name: \"no case\"}}}, {name: \"four\"}} }\n" +
			"func table() []c { return []c{{desc: \"five\"}} }\nfunc other() {}\n",
		"vendor/v/v_test.go":        "package v\nfunc TestV(t *testing.T) {}\n",
		"release-tools/r/r_test.go": "package r\nfunc TestR(t *testing.T) {}\n",
	} {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := casesBelow(root, "s")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range all {
		got = append(got, c.place+"/"+c.name)
	}
	want := []string{
		"event/Failed", "flag/--x-y", "flag/--z", "name/a.storage.k8s.io/b", "pkg TestA/one", "pkg TestA/two", "pkg TestB/-",
		"pkg TestC/four", "pkg TestC/three lines", "pkg table/five",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// A case that one side lacks is a problem, but not of a sidecar that was not read.
func TestCasesOfSidecarsAreCompared(t *testing.T) {
	have := []sidecarCase{{"a", "flag", "--both"}, {"a", "flag", "--new"}}
	named := map[string]string{"a\tflag\t--both": "SP-01", "a\tflag\t--gone": "SP-01", "b\tflag\t--x": "SN-01"}
	got := strings.Join(compareCases(have, named), "\n")
	for _, want := range []string{`does not name "a\tflag\t--new"`, `names "a\tflag\t--gone"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if strings.Count(got, "\n") != 1 {
		t.Errorf("%s", got)
	}
}

// A seed chooses the same mutants each time, another seed others, and none twice.
func TestASeedChoosesMutants(t *testing.T) {
	all := plantedSidecars()
	some := chosen(all, 1, ofARun)
	if !slices.Equal(some, chosen(all, 1, ofARun)) || slices.Equal(some, chosen(all, 2, ofARun)) {
		t.Error("the seed does not decide")
	}
	seen := map[mutant]bool{}
	for _, m := range some {
		seen[m] = true
	}
	if len(some) != ofARun || len(seen) != ofARun || len(chosen(all[:3], 1, ofARun)) != 3 {
		t.Errorf("%d mutants, %d of them different", len(some), len(seen))
	}
}
