package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// planting is bugs that are active together.
type planting struct {
	name string
	// actor is the one whose scripts find it; "" stands for all scripts.
	actor string
	bugs  []bug
}

// active is the variable of the environment that names the planting whose bugs take effect.
const active = "SIM_PLANTED"

// sicken builds the simulation with all plantings in it, and returns the program. Each function with a bug
// is in it twice, and the sound one begins with a branch to the other; so one build serves all plantings,
// which took 7 s of CPU each.
func sicken(t *testing.T, root string, all []planting) (program string) {
	t.Helper()
	g := graft{root: root, files: map[string]*grafted{}}
	for _, p := range all {
		if err := g.plant(p); err != nil {
			t.Fatalf("plant %q: %v", p.name, err)
		}
	}
	dir := t.TempDir()
	replace := map[string]string{}
	add := func(file, src string) {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[filepath.Join(root, file)] = to
		if err := os.WriteFile(to, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, f := range g.files {
		add(file, f.source())
		choice := filepath.Join(filepath.Dir(file), "planted.go")
		if strings.HasSuffix(file, "_test.go") {
			choice = filepath.Join(filepath.Dir(file), "planted_test.go")
		}
		if _, twice := replace[filepath.Join(root, choice)]; !twice {
			add(choice, fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar planted = os.Getenv(%q)\n", f.tree.Name.Name, active))
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "sim.test")
	cmd := exec.Command("go", "test", "-c", "-o", program, "-overlay", overlay, "-vet=off", "-ldflags=-s", "./test/sim")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the simulation with bugs: %v\n%s", err, out)
	}
	return program
}

// graft plants bugs in copies of functions.
type graft struct {
	root  string
	files map[string]*grafted
}

// grafted is a file with its functions, the sick copies of them, and the branches to those.
type grafted struct {
	src      []byte
	set      *token.FileSet
	tree     *ast.File
	branches map[int]string // by the index of the declaration
	copies   bytes.Buffer
}

// plant adds the functions that p changes. It fails if a bug has no place, or changes more than the bodies
// of functions.
func (g graft) plant(p planting) error {
	changed := map[string]string{}
	for _, b := range p.bugs {
		f, err := g.file(b.file)
		if err != nil {
			return err
		}
		src, again := changed[b.file]
		if !again {
			src = string(f.src)
		}
		if !strings.Contains(src, b.old) {
			return fmt.Errorf("%s has no %q any more: plant the bug elsewhere", b.file, b.old)
		}
		changed[b.file] = strings.Replace(src, b.old, b.new, 1)
	}
	for file, src := range changed {
		if err := g.files[file].copySick(p.name, src); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (g graft) file(name string) (*grafted, error) {
	if f := g.files[name]; f != nil {
		return f, nil
	}
	src, err := os.ReadFile(filepath.Join(g.root, name))
	if err != nil {
		return nil, err
	}
	f := &grafted{src: src, set: token.NewFileSet(), branches: map[int]string{}}
	if f.tree, err = parser.ParseFile(f.set, name, src, parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	g.files[name] = f
	return f, nil
}

// copySick compares the file with src, and adds the functions of src that differ.
func (f *grafted) copySick(planting, src string) error {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "", src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if len(tree.Decls) != len(f.tree.Decls) {
		return fmt.Errorf("%q adds or removes a declaration", planting)
	}
	found := false
	for i, d := range tree.Decls {
		sick := text(set, []byte(src), d)
		if sick == text(f.set, f.src, f.tree.Decls[i]) {
			continue
		}
		fn, isFunc := d.(*ast.FuncDecl)
		if !isFunc {
			return fmt.Errorf("%q changes a declaration that is no function", planting)
		}
		found = true
		name := fmt.Sprintf("%sSick%d", fn.Name.Name, f.copies.Len())
		at := set.Position(fn.Name.Pos()).Offset - set.Position(fn.Pos()).Offset
		fmt.Fprintf(&f.copies, "\n%s%s%s\n", sick[:at], name, sick[at+len(fn.Name.Name):])
		call, err := callOf(fn, name)
		if err != nil {
			return err
		}
		f.branches[i] += fmt.Sprintf("\nif planted == %q { %s }\n", planting, call)
	}
	if !found {
		return fmt.Errorf("%q changes no function", planting)
	}
	return nil
}

// callOf returns the statements that hand fn's receiver and parameters to its copy name.
func callOf(fn *ast.FuncDecl, name string) (string, error) {
	names := func(list *ast.FieldList) (all []string, err error) {
		for _, field := range list.List {
			for _, n := range field.Names {
				all = append(all, n.Name)
				if _, variadic := field.Type.(*ast.Ellipsis); variadic {
					all[len(all)-1] += "..."
				}
			}
			if len(field.Names) == 0 || field.Names[0].Name == "_" {
				return nil, fmt.Errorf("%s has a parameter without a name", fn.Name.Name)
			}
		}
		return all, nil
	}
	args, err := names(fn.Type.Params)
	if err != nil {
		return "", err
	}
	if fn.Recv != nil {
		self, err := names(fn.Recv)
		if err != nil {
			return "", err
		}
		name = self[0] + "." + name
	}
	call := fmt.Sprintf("%s(%s)", name, strings.Join(args, ", "))
	if fn.Type.Results == nil {
		return call + "; return", nil
	}
	return "return " + call, nil
}

// source returns the file with the branches and the copies.
func (f *grafted) source() string {
	var out bytes.Buffer
	from := 0
	for i, d := range f.tree.Decls {
		branch := f.branches[i]
		if branch == "" {
			continue
		}
		body := f.set.Position(d.(*ast.FuncDecl).Body.Lbrace).Offset + 1
		out.Write(f.src[from:body])
		out.WriteString(branch)
		from = body
	}
	out.Write(f.src[from:])
	out.Write(f.copies.Bytes())
	return out.String()
}

// text returns the text of a declaration without its comment.
func text(set *token.FileSet, src []byte, d ast.Decl) string {
	return string(src[set.Position(d.Pos()).Offset:set.Position(d.End()).Offset])
}

// simulate runs tests of the simulation that sicken built with the bugs of a planting.
func simulate(t *testing.T, program, planting string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"-test.timeout=10m"}, args...)...)
	cmd.Env = append(os.Environ(), active+"="+planting)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(fmt.Errorf("run the simulation: %w", err))
	}
	return string(out), err
}
