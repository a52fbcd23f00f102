package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/hack/arch"
)

// sources is an importer of packages that are checked in memory.
type sources map[string]*types.Package

func (s sources) Import(path string) (*types.Package, error) {
	if p := s[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no package %s", path)
}

// inside and foreign are what the planted packages of the front door import.
const (
	inside = `package inside
type T struct{ F int }
type (
	I interface{ M() }
	A = string
	Num interface{ ~int }
)
const C T2 = 1
type T2 int
func (T) Shown() T { return T{} }`
	foreign = `package foreign
type Box[T any] struct{ V T }
type Value any
type Values interface{ Value(key any) any }
type Lister interface{ List() []string }
type Set[K comparable] = map[K]bool
type Tag[T any] = string
type own struct{ F int }
func New() own { return own{} }`
)

// planted returns the names of a front door whose package planted has these declarations.
func planted(t *testing.T, body string) []name {
	t.Helper()
	all, d, fset := sources{}, newDoor(), token.NewFileSet()
	for _, p := range []struct{ path, text string }{
		{arch.Module + "/internal/inside", inside},
		{arch.Module + "/pkg/internal/within", "package within\ntype T int"},
		{"example.org/foreign", foreign},
		{arch.Module + "/pkg/planted", `package planted
import ("` + arch.Module + `/internal/inside"; "` + arch.Module + `/pkg/internal/within"; "example.org/foreign")
var (_ inside.T; _ within.T; _ foreign.Value)
` + body},
	} {
		f, err := parser.ParseFile(fset, p.path, p.text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}}
		checked, err := (&types.Config{Importer: all}).Check(p.path, fset, []*ast.File{f}, info)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		all[p.path] = checked
		if importable(p.path) {
			d.add(checked, info, []*ast.File{f})
		}
	}
	return d.names()
}
