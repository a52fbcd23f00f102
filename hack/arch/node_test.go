package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The limits of internal/wire, which is the wiring and nothing else (ADR 7). They go
// down to 1,300 lines and 15 methods as features move out, and never up.
const (
	maxNodeLines   = 1300
	maxNodeMethods = 15
	maxNodeFields  = 41
)

func TestNodeWires(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "internal/wire", "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	lines, methods, fields := 0, 0, 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(b), "\n")
		s := parseFile(t, "internal/wire", filepath.Dir(name), filepath.Base(name))
		m, f := partsOf(s.file, "Node")
		methods, fields = methods+m, fields+f
	}
	for what, got := range map[string][2]int{
		"lines": {lines, maxNodeLines}, "methods of Node": {methods, maxNodeMethods}, "fields of Node": {fields, maxNodeFields},
	} {
		if got[0] > got[1] {
			t.Errorf("internal/wire: %d %s, %d at the most: a feature has a room and a Config of its own", got[0], what, got[1])
		}
	}
}

// partsOf counts the type's methods in a file, and the fields of the type's struct.
func partsOf(f *ast.File, typ string) (methods, fields int) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
			star, _ := fn.Recv.List[0].Type.(*ast.StarExpr)
			if star == nil {
				continue
			}
			if id, ok := star.X.(*ast.Ident); ok && id.Name == typ {
				methods++
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != typ {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				fields += max(len(field.Names), 1)
			}
		}
		return false
	})
	return methods, fields
}

func TestPartsOfATypeAreCounted(t *testing.T) {
	s := parse(t, "internal/wire", "a.go", "package node\ntype Node struct { a, b int; c string; *Other }\nfunc (n *Node) F() {}\nfunc (o *Other) G() {}\nfunc (n Node) H() {}\nfunc I() {}")
	if methods, fields := partsOf(s.file, "Node"); methods != 1 || fields != 4 {
		t.Errorf("%d methods and %d fields", methods, fields)
	}
}
