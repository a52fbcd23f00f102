package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// sidecarModules has the go.mod that says which release of each sidecar the catalogue is of.
const sidecarModules = "test/cluster/sidecars/go.mod"

// sidecarCase is something that a sidecar has: a case of its tests, a flag, or a name that it reads or writes.
type sidecarCase struct {
	sidecar string // "external-provisioner"
	place   string // "pkg/controller TestDelete", "flag", "name" or "event"
	name    string
}

func (c sidecarCase) String() string { return c.sidecar + "\t" + c.place + "\t" + c.name }

// readSidecars returns what the releases of the sidecars have that the tree's module names.
func readSidecars(ctx context.Context, root string) (all []sidecarCase, err error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(sidecarModules)))
	if err != nil {
		return nil, err
	}
	module := regexp.MustCompile(`(?m)^\s*(github\.com/kubernetes-csi/(external-\w+)/v\d+) (v\S+)`)
	for _, m := range module.FindAllStringSubmatch(string(text), -1) {
		cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", m[1]+"@"+m[3])
		cmd.Dir = os.TempDir() // the module is not one of the tree's
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("download %s: %w", m[1], err)
		}
		var got struct{ Dir string }
		if err := json.Unmarshal(out, &got); err != nil {
			return nil, fmt.Errorf("download %s: %w", m[1], err)
		}
		cases, err := casesBelow(got.Dir, m[2])
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", m[1], err)
		}
		all = append(all, cases...)
	}
	return all, nil
}

// casesBelow returns what the sidecar's files below dir have.
func casesBelow(dir, sidecar string) (all []sidecarCase, err error) {
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"vendor", "release-tools", "client"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(name))
		if err != nil {
			return err
		}
		read := casesOfFile
		if strings.HasSuffix(name, "_test.go") {
			read = casesOfTests
		}
		for _, c := range read(f, filepath.ToSlash(rel)) {
			c.sidecar = sidecar
			all = append(all, c)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b sidecarCase) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all), err
}

// casesOfTests returns the cases of the tables in a file of tests, and each test without one.
func casesOfTests(f *ast.File, dir string) (all []sidecarCase) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Name.Name == "TestMain" {
			continue
		}
		at := dir + " " + fn.Name.Name
		names := tableNames(fn.Body)
		if strings.HasPrefix(fn.Name.Name, "Test") && len(names) == 0 {
			names = []string{"-"}
		}
		for _, n := range names {
			all = append(all, sidecarCase{place: at, name: n})
		}
	}
	return all
}

// tableNames returns the names of the cases of tables below n: keys of maps, and fields that are a name.
func tableNames(n ast.Node) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		for _, e := range lit.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch key := kv.Key.(type) {
			case *ast.BasicLit:
				if value, is := kv.Value.(*ast.CompositeLit); is && value.Type == nil && text(key) != "" {
					names = append(names, text(key))
				}
			case *ast.Ident:
				if slices.Contains([]string{"name", "desc", "testName", "description"}, key.Name) && lit.Type == nil && text(kv.Value) != "" {
					names = append(names, text(kv.Value))
					return false // what is in it has names of its own
				}
			}
		}
		return !slices.ContainsFunc(lit.Elts, isCase)
	})
	return names
}

// isCase reports whether an element of a table is one by its key.
func isCase(e ast.Expr) bool {
	kv, ok := e.(*ast.KeyValueExpr)
	if !ok {
		return false
	}
	value, ok := kv.Value.(*ast.CompositeLit)
	return ok && value.Type == nil && text(kv.Key) != ""
}

// text returns the value of a string in a program; "" for other expressions.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(s), " ")
}

// kubernetesName matches the names of annotations, finalizers and parameters.
var kubernetesName = regexp.MustCompile(`^([a-z0-9-]+\.)+(storage\.k8s|kubernetes)\.io/[A-Za-z/-]+$`)

// casesOfFile returns the flags that a file of a program defines, the names that it has, and the reasons of its events.
func casesOfFile(f *ast.File, _ string) (all []sidecarCase) {
	ast.Inspect(f, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && kubernetesName.MatchString(text(e)) {
			all = append(all, sidecarCase{place: "name", name: text(e)})
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, _ := f.X.(*ast.Ident)
		switch {
		case of != nil && (of.Name == "flag" || of.Name == "pflag" || of.Name == "flags"):
			for _, a := range call.Args[:min(2, len(call.Args))] {
				if name := text(a); name != "" {
					all = append(all, sidecarCase{place: "flag", name: "--" + name})
					break
				}
			}
		case (f.Sel.Name == "Event" || f.Sel.Name == "Eventf") && len(call.Args) > 2 && text(call.Args[2]) != "":
			all = append(all, sidecarCase{place: "event", name: text(call.Args[2])})
		}
		return true
	})
	return all
}

// compareCases says how the cases that the catalogue names differ from those that the sidecars have. It ignores the
// named cases of sidecars that were not read.
func compareCases(have []sidecarCase, named map[string]string) (problems []string) {
	read, sidecars := map[string]bool{}, map[string]bool{}
	for _, c := range have {
		read[c.String()], sidecars[c.sidecar] = true, true
		if named[c.String()] == "" {
			problems = append(problems, fmt.Sprintf("hack/items/sidecar-cases.txt does not name %q", c.String()))
		}
	}
	for what := range named {
		if sidecar, _, _ := strings.Cut(what, "\t"); sidecars[sidecar] && !read[what] {
			problems = append(problems, fmt.Sprintf("hack/items/sidecar-cases.txt names %q, which the sidecar has not", what))
		}
	}
	slices.Sort(problems)
	return problems
}

// showSidecars runs the tests that show what the sidecars do, compares the catalogue with the sidecars, plants some of
// the mutants, which seed chooses, and reports whether nothing is wrong.
func showSidecars(ctx context.Context, root string, seed uint64, out io.Writer) (bool, error) {
	found, _, err := items.Collect(root) // run has printed the problems
	if err != nil {
		return false, err
	}
	t := compare(items.Catalog(items.Sidecars), found[items.Sidecars], nil)
	problems := runCited(ctx, root, t, found[items.Sidecars], out)
	have, err := readSidecars(ctx, root)
	if err != nil {
		return false, err
	}
	named, err := items.SidecarCases()
	if err != nil {
		return false, err
	}
	problems = append(problems, compareCases(have, named)...)
	fmt.Fprintf(out, "%d mutants of the sidecars' behaviours, by -seed %d\n", ofARun, seed)
	live, err := plantMutants(ctx, root, chosen(plantedSidecars(), seed, ofARun), out)
	if err != nil {
		return false, err
	}
	if problems = append(problems, live...); len(problems) > 0 {
		_, err = fmt.Fprintf(out, "\nwrong:\n  %s\n", strings.Join(problems, "\n  "))
	}
	return len(problems) == 0, err
}
