package main

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/arch"
)

// door is the packages that programs of others import.
type door struct {
	packages map[string]*types.Package // by their paths
	// right has the type at the right of each type declaration. A types.Named does not say
	// that it was declared as another type, and a reader of the source sees that.
	right map[*types.TypeName]types.Type
}

// load type-checks the packages below pkg of the tree at root.
func load(root string) (*door, error) {
	all, err := arch.NewTyped(root, "./pkg/...")
	if err != nil {
		return nil, err
	}
	d := newDoor()
	for _, p := range all.Packages {
		if !importable(p.ImportPath) {
			continue
		}
		files, err := all.Parse(p)
		if err != nil {
			return nil, err
		}
		checked, info, err := all.Check(p.ImportPath, files)
		if err != nil {
			return nil, err
		}
		d.add(checked, info, files)
	}
	return d, nil
}

func newDoor() *door {
	return &door{packages: map[string]*types.Package{}, right: map[*types.TypeName]types.Type{}}
}

func (d *door) add(p *types.Package, info *types.Info, files []*ast.File) {
	d.packages[p.Path()] = p
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				d.right[info.Defs[spec.Name].(*types.TypeName)] = info.TypeOf(spec.Type)
			}
			return true
		})
	}
}

// importable reports whether a package is one of the front door's.
func importable(pkgPath string) bool {
	return strings.HasPrefix(pkgPath, arch.Module+"/pkg/") && !slices.Contains(strings.Split(pkgPath, "/"), "internal")
}

// hidden reports whether a package is one of the module's and not of its front door.
func hidden(p *types.Package) bool {
	return p != nil && (p.Path() == arch.Module || strings.HasPrefix(p.Path(), arch.Module+"/")) && !importable(p.Path())
}
