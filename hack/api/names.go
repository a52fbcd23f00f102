package main

import (
	"cmp"
	"fmt"
	"go/types"
	"maps"
	"slices"
)

// name is something that a program of others can use, or a type that the declaration of
// one shows.
type name struct {
	pkg  *types.Package
	kind kind
	name string // with its type, if it has one: T.Field, (*T).Method
	text string // its type
	// shows are the types in its declaration, and bounds its type parameters.
	shows  []types.Type
	bounds *types.TypeParamList
	// bare is set if callers do not get the methods of the types in shows, or get them as
	// others' names: the type of X in "type X y", and an embedded type.
	bare bool
	// foreign is set for a method that embedding promotes from a package of others, which
	// has decided its signature.
	foreign bool
}

type kind string

const (
	aConst  kind = "const"
	aField  kind = "field"
	aFunc   kind = "func"
	aMethod kind = "method"
	aType   kind = "type"
	aVar    kind = "var"
	// unlisted has no line of its own: an unexported type, or an embedded one whose name is
	// not exported.
	unlisted kind = ""
)

// collector finds the names of a door. Fields and methods of an unexported type count when
// an exported name shows the type: a caller can use them.
type collector struct {
	*door
	all                   []name
	declarations, methods map[*types.TypeName]bool // the types that are in all, and whose methods are
}

func (d *door) names() []name {
	c := &collector{door: d, declarations: map[*types.TypeName]bool{}, methods: map[*types.TypeName]bool{}}
	for _, path := range slices.Sorted(maps.Keys(d.packages)) {
		scope := d.packages[path].Scope()
		for _, n := range scope.Names() {
			if o := scope.Lookup(n); o.Exported() {
				c.object(o)
			}
		}
	}
	for i := 0; i < len(c.all); i++ { // reach adds to the list
		c.reach(c.all[i])
	}
	slices.SortStableFunc(c.all, func(a, b name) int { return cmp.Compare(a.line(), b.line()) })
	return c.all
}

// line is the name's line of the document.
func (n name) line() string { return fmt.Sprintf("%s %s %s %s", below(n.pkg), n.kind, n.name, n.text) }

func (c *collector) object(o types.Object) {
	n := name{pkg: o.Pkg(), name: o.Name(), text: textOf(o.Type(), o.Pkg()), shows: []types.Type{o.Type()}}
	switch o := o.(type) {
	case *types.Const:
		n.kind = aConst
	case *types.Var:
		n.kind = aVar
	case *types.Func:
		n.kind = aFunc
	case *types.TypeName:
		c.typ(o, aType)
		c.methodsOf(o)
		return
	}
	c.all = append(c.all, n)
}

// typ adds a declared type and its fields.
func (c *collector) typ(o *types.TypeName, k kind) {
	if c.declarations[o] {
		return
	}
	c.declarations[o] = true
	n := name{pkg: o.Pkg(), kind: k, name: o.Name()}
	w := &text{from: o.Pkg()}
	switch t := o.Type().(type) {
	case *types.Alias:
		n.bounds, n.shows = t.TypeParams(), []types.Type{t.Rhs()}
		w.parameters(n.bounds)
		w.prefixed("= ", t.Rhs())
	case *types.Named:
		n.bounds = t.TypeParams()
		if right := c.right[o]; !apart(right) {
			n.shows = []types.Type{right}
			_, n.bare = right.(*types.Named)
		}
		w.parameters(n.bounds)
		w.underlying(t.Underlying())
		c.parts(o, t.Underlying())
	}
	n.text = w.String()
	c.all = append(c.all, n)
}

// apart reports whether the parts of a type are names of their own.
func apart(t types.Type) bool {
	switch t := t.(type) {
	case *types.Struct:
		return true
	case *types.Interface:
		return !t.Empty()
	}
	return false
}

// parts adds the fields of a struct, and what an interface embeds.
func (c *collector) parts(o *types.TypeName, t types.Type) {
	switch t := t.(type) {
	case *types.Struct:
		for f := range t.Fields() {
			n := name{pkg: o.Pkg(), name: o.Name() + "." + f.Name(), text: textOf(f.Type(), o.Pkg()), shows: []types.Type{f.Type()}}
			if f.Embedded() {
				n.text = "embedded " + n.text
			}
			switch {
			case f.Exported():
				n.kind = aField
			case f.Embedded():
				n.bare = true
			default:
				continue
			}
			c.all = append(c.all, n)
		}
	case *types.Interface:
		for e := range t.EmbeddedTypes() {
			c.all = append(c.all, name{pkg: o.Pkg(), name: o.Name() + "." + textOf(e, o.Pkg()), shows: []types.Type{e}, bare: true})
		}
	}
}

// methodsOf adds the methods of a type, promoted ones too.
func (c *collector) methodsOf(o *types.TypeName) {
	if _, alias := o.Type().(*types.Alias); alias || c.methods[o] {
		return // the methods of an alias are those of the type that it stands for
	}
	c.methods[o] = true
	values := types.NewMethodSet(o.Type())
	all := values
	if !types.IsInterface(o.Type()) {
		all = types.NewMethodSet(types.NewPointer(o.Type()))
	}
	for m := range all.Methods() {
		f := m.Obj().(*types.Func)
		if !f.Exported() {
			continue
		}
		receiver := o.Name()
		if values.Lookup(f.Pkg(), f.Name()) == nil {
			receiver = "(*" + receiver + ")"
		}
		c.all = append(c.all, name{
			pkg: o.Pkg(), kind: aMethod, name: receiver + "." + f.Name(), text: textOf(f.Signature(), o.Pkg()),
			shows: []types.Type{f.Signature()}, foreign: f.Pkg() != nil && !importable(f.Pkg().Path()) && !hidden(f.Pkg()),
		})
	}
}

// reach adds the unexported types that a name shows. Those of another package are shown by
// a name of that package, too.
func (c *collector) reach(n name) {
	n.walk(shown{empty: func() {}, name: func(o *types.TypeName) {
		if o.Pkg() != n.pkg || o.Exported() {
			return
		}
		c.typ(o, unlisted)
		if !n.bare {
			c.methodsOf(o)
		}
	}})
}

// walk walks the types in the declaration of a name.
func (n name) walk(s shown) {
	s.bounds(n.bounds)
	for _, t := range n.shows {
		s.walk(t)
	}
}
