package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// recordRoom declares the types of records.
const recordRoom = "pkg/state"

// records are the types whose values are shared: by the loop, the journal, the calls in
// flight and the readers of the status. A shared value is replaced, never written to.
var records = []string{"Volume", "PodWant"}

// builders are the rooms that build records: a record under construction has no other reader yet.
var builders = []string{"internal/wants/resolve", "internal/tools/handover", "test/drivertest", "test/drivertest/disktest"}

// changing are the functions that write to memory that their first argument refers to.
var changing = []string{
	"delete", "clear", "copy",
	"maps.Copy", "maps.DeleteFunc", "maps.Insert",
	"slices.Sort", "slices.SortFunc", "slices.SortStableFunc", "slices.Reverse",
	"slices.Delete", "slices.DeleteFunc", "slices.Insert", "slices.Replace", "slices.Compact", "slices.CompactFunc",
}

// recordTypes returns the structs of the package state that records refer to, each
// as its package's path and its name.
func recordTypes(state *types.Package) map[string]bool {
	all := map[string]bool{}
	var follow func(types.Type)
	follow = func(t types.Type) {
		switch t := types.Unalias(t).(type) {
		case *types.Named:
			s, ok := t.Underlying().(*types.Struct)
			if !ok || t.Obj().Pkg() != state || all[typeName(t)] {
				return
			}
			all[typeName(t)] = true
			for f := range s.Fields() {
				follow(f.Type())
			}
		case interface{ Elem() types.Type }: // a pointer, a slice, an array or a map
			follow(t.Elem())
		}
	}
	for _, name := range records {
		follow(state.Scope().Lookup(name).Type())
	}
	return all
}

func typeName(n *types.Named) string { return n.Obj().Pkg().Path() + "." + n.Obj().Name() }

// recordWrites looks for writes to shared records in the files of a package.
type recordWrites struct {
	info *types.Info
	of   map[string]bool // recordTypes
	// aliases are the variables that were declared as a map or slice of a record; copied
	// has the expressions of those that the function has replaced by a copy.
	aliases map[types.Object]bool
	copied  map[string]bool
	found   []token.Pos
}

// positions returns where the file writes to a record that others may share.
func (w *recordWrites) positions(f *ast.File) []token.Pos {
	w.found = nil
	for _, decl := range f.Decls {
		w.aliases, w.copied = map[types.Object]bool{}, map[string]bool{}
		ast.Inspect(decl, w.look)
	}
	return w.found
}

func (w *recordWrites) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if len(n.Lhs) == len(n.Rhs) {
				w.assigned(to, n.Rhs[i])
			}
			w.check(n.Tok != token.DEFINE && w.shared(to), to)
		}
	case *ast.IncDecStmt:
		w.check(w.shared(n.X), n.X)
	case *ast.CallExpr:
		w.check(len(n.Args) > 0 && slices.Contains(changing, types.ExprString(n.Fun)) && w.had(n.Args[0]), n)
	}
	return true
}

func (w *recordWrites) check(wrong bool, n ast.Node) {
	if wrong {
		w.found = append(w.found, n.Pos())
	}
}

// assigned records that to is from after this assignment.
func (w *recordWrites) assigned(to, from ast.Expr) {
	if id, ok := to.(*ast.Ident); ok {
		w.aliases[w.info.ObjectOf(id)] = w.had(from)
		return
	}
	name := types.ExprString(to)
	switch from := ast.Unparen(from).(type) {
	case *ast.CompositeLit:
		w.copied[name] = true
	case *ast.CallExpr:
		f := types.ExprString(from.Fun)
		w.copied[name] = f == "maps.Clone" || f == "slices.Clone" || f == "make"
	default:
		w.copied[name] = false
	}
}

// shared reports whether e names memory that a record refers to: through a pointer to
// a record, or as an element of its map or slice. A copy of a record is not shared.
func (w *recordWrites) shared(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.StarExpr:
		return w.pointer(e.X)
	case *ast.SelectorExpr:
		return w.pointer(e.X) || w.shared(e.X)
	case *ast.IndexExpr:
		return w.had(e.X) || w.shared(e.X)
	}
	return false
}

// had reports whether e is a map or a slice of a record that was not copied, or a variable
// that was declared as one.
func (w *recordWrites) had(e ast.Expr) bool {
	switch w.typeOf(e).Underlying().(type) {
	case *types.Map, *types.Slice:
	default:
		return false
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.SelectorExpr:
		return (w.record(w.typeOf(e.X)) || w.pointer(e.X)) && !w.copied[types.ExprString(e)]
	case *ast.SliceExpr:
		return w.had(e.X)
	case *ast.Ident:
		return w.aliases[w.info.ObjectOf(e)]
	}
	return false
}

// pointer reports whether e is a pointer to a record.
func (w *recordWrites) pointer(e ast.Expr) bool {
	p, ok := w.typeOf(e).Underlying().(*types.Pointer)
	return ok && w.record(p.Elem())
}

func (w *recordWrites) record(t types.Type) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Pkg() != nil && w.of[typeName(n)]
}

// typeOf returns the type of e, or the invalid type if e has none, such as a package name.
func (w *recordWrites) typeOf(e ast.Expr) types.Type {
	if t := w.info.TypeOf(e); t != nil {
		return types.Unalias(t)
	}
	return types.Typ[types.Invalid]
}
