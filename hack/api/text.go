package main

import (
	"fmt"
	"go/types"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/arch"
)

// text writes types as a caller of package from sees them: without the names of
// parameters, with the paths of other packages.
type text struct {
	strings.Builder
	from *types.Package
}

// textOf returns the text of a type.
func textOf(t types.Type, from *types.Package) string {
	w := &text{from: from}
	w.typ(t)
	return w.String()
}

// below returns the path of a package, from the root of the module if it is one of the module's.
func below(p *types.Package) string { return strings.TrimPrefix(p.Path(), arch.Module+"/") }

func (w *text) typ(t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		w.name(t.Obj(), t.TypeArgs())
	case *types.Named:
		w.name(t.Obj(), t.TypeArgs())
	case *types.Pointer:
		w.prefixed("*", t.Elem())
	case *types.Slice:
		w.prefixed("[]", t.Elem())
	case *types.Array:
		w.prefixed(fmt.Sprintf("[%d]", t.Len()), t.Elem())
	case *types.Map:
		w.prefixed("map[", t.Key())
		w.prefixed("]", t.Elem())
	case *types.Chan:
		w.prefixed(map[types.ChanDir]string{types.SendRecv: "chan ", types.SendOnly: "chan<- ", types.RecvOnly: "<-chan "}[t.Dir()], t.Elem())
	case *types.Signature:
		w.WriteString("func")
		w.parameters(t.TypeParams())
		w.signature(t)
	case *types.Struct:
		w.fields(t)
	case *types.Interface:
		w.methods(t)
	case *types.Union:
		w.union(t)
	default: // a basic type, or a type parameter
		w.WriteString(t.String())
	}
}

func (w *text) prefixed(prefix string, t types.Type) {
	w.WriteString(prefix)
	w.typ(t)
}

func (w *text) name(n *types.TypeName, args *types.TypeList) {
	if n.Pkg() != nil && n.Pkg().Path() != w.from.Path() {
		w.WriteString(below(n.Pkg()) + ".")
	}
	w.WriteString(n.Name())
	for i := range args.Len() {
		w.prefixed(separator(i, "[", ", "), args.At(i))
	}
	if args.Len() > 0 {
		w.WriteString("]")
	}
}

// separator returns what comes before the element i of a list.
func separator(i int, first, later string) string {
	if i == 0 {
		return first
	}
	return later
}

// parameters writes the type parameters of a declaration.
func (w *text) parameters(of *types.TypeParamList) {
	for i := range of.Len() {
		w.WriteString(separator(i, "[", ", ") + of.At(i).Obj().Name())
		w.prefixed(" ", of.At(i).Constraint())
	}
	if of.Len() > 0 {
		w.WriteString("]")
	}
}

func (w *text) signature(s *types.Signature) {
	w.WriteString("(")
	for i := range s.Params().Len() {
		w.WriteString(separator(i, "", ", "))
		t := s.Params().At(i).Type()
		if list, ok := t.(*types.Slice); ok && s.Variadic() && i == s.Params().Len()-1 {
			w.prefixed("...", list.Elem())
			continue
		}
		w.typ(t)
	}
	w.WriteString(")")
	switch s.Results().Len() {
	case 0:
	case 1:
		w.prefixed(" ", s.Results().At(0).Type())
	default:
		for i := range s.Results().Len() {
			w.prefixed(separator(i, " (", ", "), s.Results().At(i).Type())
		}
		w.WriteString(")")
	}
}

// underlying writes the type at the right of a declaration. The fields of a struct and the
// methods of an interface have lines of their own.
func (w *text) underlying(t types.Type) {
	if w.Len() > 0 {
		w.WriteString(" ")
	}
	switch i, ok := t.(*types.Interface); {
	case isStruct(t):
		w.WriteString("struct")
	case !ok || !i.IsMethodSet():
		w.typ(t)
	case sealed(i):
		w.WriteString("interface with unexported methods")
	default:
		w.WriteString("interface")
	}
}

func isStruct(t types.Type) bool {
	_, ok := t.(*types.Struct)
	return ok
}

// sealed reports whether only the package of an interface can implement it.
func sealed(i *types.Interface) bool {
	for m := range i.Methods() {
		if !m.Exported() {
			return true
		}
	}
	return false
}

func (w *text) fields(s *types.Struct) {
	w.WriteString("struct{")
	for i := range s.NumFields() {
		w.WriteString(separator(i, "", "; "))
		if f := s.Field(i); !f.Embedded() {
			w.WriteString(f.Name() + " ")
		}
		w.typ(s.Field(i).Type())
	}
	w.WriteString("}")
}

func (w *text) methods(t *types.Interface) {
	if t.IsImplicit() && t.NumEmbeddeds() == 1 {
		w.typ(t.EmbeddedType(0))
		return
	}
	w.WriteString("interface{")
	n := 0
	for m := range t.ExplicitMethods() {
		w.WriteString(separator(n, "", "; ") + m.Name())
		w.signature(m.Signature())
		n++
	}
	for e := range t.EmbeddedTypes() {
		w.prefixed(separator(n, "", "; "), e)
		n++
	}
	w.WriteString("}")
}

func (w *text) union(u *types.Union) {
	for i := range u.Len() {
		if i > 0 {
			w.WriteString(" | ")
		}
		if u.Term(i).Tilde() {
			w.WriteString("~")
		}
		w.typ(u.Term(i).Type())
	}
}
