package arch

import (
	"go/ast"
	"go/parser"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// typed has the types of every package of the module.
type typed struct {
	*testing.T
	*Typed
}

func newTyped(t *testing.T) *typed {
	t.Helper()
	all, err := NewTyped(root, "./...")
	if err != nil {
		t.Fatal(err)
	}
	return &typed{T: t, Typed: all}
}

// parse parses the files of a package.
func (t *typed) parse(p Package) []*ast.File {
	t.Helper()
	files, err := t.Parse(p)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// check type-checks the files of a package.
func (t *typed) check(path string, files []*ast.File) *types.Info {
	t.Helper()
	_, info, err := t.Check(path, files)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// writes lists where the files of a package write to records.
func (t *typed) writes(of map[string]bool, path string, files []*ast.File) (at []string) {
	t.Helper()
	info := t.check(path, files)
	w := recordWrites{info: info, of: of}
	for _, f := range files {
		for _, p := range w.positions(f) {
			at = append(at, t.Fset.Position(p).String())
		}
	}
	return at
}

func (t *typed) recordTypes() map[string]bool {
	t.Helper()
	state, err := t.From.Import(Module + "/" + recordRoom)
	if err != nil {
		t.Fatal(err)
	}
	return recordTypes(state)
}

// A shared record is replaced, never written to.
func TestNoRoomWritesToARecord(t *testing.T) {
	all := newTyped(t)
	of := all.recordTypes()
	for _, p := range all.Packages {
		dir := strings.TrimPrefix(p.ImportPath, Module+"/")
		if slices.Contains(builders, dir) {
			continue
		}
		for _, at := range all.writes(of, p.ImportPath, all.parse(p)) {
			t.Errorf("%s: writes to a record that the loop, the journal or a call may share: change a copy", at)
		}
	}
}

func TestWritesToRecordsAreFound(t *testing.T) {
	all := newTyped(t)
	of := all.recordTypes()
	for _, body := range []string{
		`p.Attach = state.Fact{}`, `*p = state.Volume{}`, `p.Spec.SELinuxLabel = ""`, `v.Spec.SELinuxLabel = ""`,
		`v.Mounts["a"] = state.Mount{}`, `delete(v.Mounts, "a")`, `clear(v.For)`, `v.For[0] = "b"`, `copy(v.For, v.For[1:])`,
		`v.Spec.MountFlags[0] += ",ro"`, `v.Mounts["a"].Names[0] = "x"`, `p.SizeBytes++`, `p.Attach.Failed.Attempts++`,
		`m := v.Mounts; m["a"] = state.Mount{}`, `slices.Sort(v.For)`, `w.Volumes[0].Hold = ""`, `s := v.Spec; s.Handle = ""`,
		`f := &v.Stage; f.Phase = 0`, `for _, s := range w.Volumes[0].Mount.Names[:1] { w.Volumes[0].Mount.Names[0] = s }`,
		`v.For = slices.Clone(v.For); v.For = p.For; v.For[0] = ""`,
	} {
		if all.planted(of, body) == nil {
			t.Errorf("%s: not found", body)
		}
	}
	for _, body := range []string{
		`v.Attach = state.Fact{}`, `v.Mounts = nil`, `u := *p; u.Attach = state.Fact{}`, `s := *v.Spec; s.Handle = ""; v.Spec = &s`,
		`v.Mounts = maps.Clone(v.Mounts); v.Mounts["a"] = state.Mount{}`, `m := maps.Clone(v.Mounts); m["a"] = state.Mount{}`,
		`m := v.Mounts["a"]; m.Names = nil`, `v.For = slices.Clone(v.For); v.For[0] = "x"; slices.Sort(v.For)`, `w.Volumes = nil`,
	} {
		if at := all.planted(of, body); at != nil {
			t.Errorf("%s: found, and it changes a copy", body)
		}
	}
}

// planted returns the findings in a function with this body.
func (t *typed) planted(of map[string]bool, body string) []string {
	t.Helper()
	f, err := parser.ParseFile(t.Fset, "planted.go", `package planted
import ("maps"; "slices"; "`+Module+`/pkg/state")
var _, _ = maps.Clone[map[int]int], slices.Max[[]int]
func planted(v state.Volume, p *state.Volume, w state.PodWant) { `+body+` }`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return t.writes(of, "planted", []*ast.File{f})
}
