package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Typed type-checks packages of the module, with the compiler's export data of all that
// they import.
type Typed struct {
	Fset *token.FileSet
	From types.Importer
	// Packages are those of the module that are among the patterns or imported by them.
	Packages []Package
}

// Package is one of the module, as go list prints it.
type Package struct {
	ImportPath, Dir string
	GoFiles         []string
}

// NewTyped builds the packages that match the patterns of go list in the directory root.
func NewTyped(root string, patterns ...string) (*Typed, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}, patterns...)...)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export %s: %w", strings.Join(patterns, " "), err)
	}
	all := &Typed{Fset: token.NewFileSet()}
	exports := map[string]string{}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			Package
			Export string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list -export %s: %w", strings.Join(patterns, " "), err)
		}
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, Module) {
			all.Packages = append(all.Packages, p.Package)
		}
	}
	all.From = importer.ForCompiler(all.Fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return all, nil
}

// Parse parses the files of a package.
func (t *Typed) Parse(p Package) (files []*ast.File, err error) {
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(t.Fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", p.ImportPath, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// Check type-checks the files of a package.
func (t *Typed) Check(path string, files []*ast.File) (*types.Package, *types.Info, error) {
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	p, err := (&types.Config{Importer: t.From}).Check(path, t.Fset, files, info)
	if err != nil {
		return nil, nil, fmt.Errorf("check %s: %w", path, err)
	}
	return p, info, nil
}
