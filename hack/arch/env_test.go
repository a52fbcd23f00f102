package arch

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// The CSI specification reserves environment variables that begin with CSI_: shipped
// code does not define any.
// Items: N-10.
func TestNoEnvironmentVariableOfCSIIsInvented(t *testing.T) {
	for _, p := range packages(t) {
		dir := strings.TrimPrefix(p.ImportPath, Module+"/")
		if !product(dir) || dir == "test/drivertest" {
			continue
		}
		for _, name := range p.GoFiles {
			s := parseFile(t, dir, p.Dir, name)
			ast.Inspect(s.file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.HasPrefix(lit.Value[1:], "CSI_") && lit.Value != `"CSI_ENDPOINT"` {
					t.Errorf("%s: %s: names that begin with CSI_ are the specification's", s.at(lit.Pos()), lit.Value)
				}
				return true
			})
		}
	}
}
