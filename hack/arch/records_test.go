package arch

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// typed has the compiler's export data of every package of the module and of its
// dependencies.
type typed struct {
	*testing.T
	fset *token.FileSet
	from types.Importer
	ours []pkg
}

func newTyped(t *testing.T) *typed {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := &typed{T: t, fset: token.NewFileSet()}
	exports := map[string]string{}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			pkg
			Export string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, Module) {
			all.ours = append(all.ours, p.pkg)
		}
	}
	all.from = importer.ForCompiler(all.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return all
}

// check type-checks the files of a package.
func (t *typed) check(path string, files []*ast.File) *types.Info {
	t.Helper()
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	if _, err := (&types.Config{Importer: t.from}).Check(path, t.fset, files, info); err != nil {
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
			at = append(at, t.fset.Position(p).String())
		}
	}
	return at
}

func (t *typed) recordTypes() map[string]bool {
	t.Helper()
	state, err := t.from.Import(Module + "/" + recordRoom)
	if err != nil {
		t.Fatal(err)
	}
	return recordTypes(state)
}

// A shared record is replaced, never written to.
func TestNoRoomWritesToARecord(t *testing.T) {
	all := newTyped(t)
	of := all.recordTypes()
	for _, p := range all.ours {
		dir := strings.TrimPrefix(p.ImportPath, Module+"/")
		if slices.Contains(builders, dir) {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(all.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		for _, at := range all.writes(of, p.ImportPath, files) {
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
	f, err := parser.ParseFile(t.fset, "planted.go", `package planted
import ("maps"; "slices"; "`+Module+`/pkg/state")
var _, _ = maps.Clone[map[int]int], slices.Max[[]int]
func planted(v state.Volume, p *state.Volume, w state.PodWant) { `+body+` }`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return t.writes(of, "planted", []*ast.File{f})
}
