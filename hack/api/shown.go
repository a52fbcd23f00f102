package main

import "go/types"

// shown calls name for each declared type that a type shows to a reader, and empty for
// each empty interface, which may hold a value of any type.
type shown struct {
	name  func(*types.TypeName)
	empty func()
}

func (s shown) walk(t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		s.name(t.Obj())
		s.list(t.TypeArgs())
		s.walk(t.Rhs()) // a caller may use what the alias stands for
	case *types.Named:
		s.name(t.Obj())
		s.list(t.TypeArgs())
		if isEmpty(t) && !importable(pathOf(t.Obj())) { // one of pkg is reported where it is declared
			s.empty()
		}
	case *types.Map:
		s.walk(t.Key())
		s.walk(t.Elem())
	case interface{ Elem() types.Type }: // a pointer, a slice, an array or a channel
		s.walk(t.Elem())
	case *types.Signature:
		s.bounds(t.TypeParams())
		s.tuple(t.Params())
		s.tuple(t.Results())
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				s.walk(f.Type())
			}
		}
	case *types.Interface:
		s.literal(t)
	case *types.Union:
		for term := range t.Terms() {
			s.walk(term.Type())
		}
	}
}

// literal walks an interface without a name. Its unexported methods are for its own package.
func (s shown) literal(t *types.Interface) {
	if isEmpty(t) {
		s.empty()
		return
	}
	for m := range t.ExplicitMethods() {
		if m.Exported() {
			s.walk(m.Signature())
		}
	}
	for e := range t.EmbeddedTypes() {
		s.walk(e)
	}
}

func (s shown) list(of *types.TypeList) {
	for t := range of.Types() {
		s.walk(t)
	}
}

func (s shown) tuple(of *types.Tuple) {
	for v := range of.Variables() {
		s.walk(v.Type())
	}
}

// bounds walks the constraints of type parameters. An empty one hides nothing: the caller
// chooses the type.
func (s shown) bounds(of *types.TypeParamList) {
	constraints := s
	for p := range of.TypeParams() {
		if isEmpty(p.Constraint()) {
			constraints.empty = func() {}
		} else {
			constraints.empty = s.empty
		}
		constraints.walk(p.Constraint())
	}
}

// isEmpty reports whether a type is an interface that every type implements.
func isEmpty(t types.Type) bool {
	i, ok := t.Underlying().(*types.Interface)
	return ok && i.Empty()
}

func pathOf(n *types.TypeName) string {
	if n.Pkg() == nil {
		return ""
	}
	return n.Pkg().Path()
}
