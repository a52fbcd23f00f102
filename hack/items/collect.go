package items

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Claim says that a test proves an item.
type Claim struct {
	Kind Kind
	ID   string
	// Dir is the directory of the test's package and Module that of its go.mod,
	// both from the root of the tree, with slashes.
	Dir, Module string
	Test        string
	// At is file:line from the root of the tree.
	At string
}

// Tests has the claims of a tree by item.
type Tests map[Kind]map[string][]Claim

// Collect reads every test of the tree at root. problems lists wrong claims (an
// item that does not exist, a claim without a test); err is for files that cannot
// be read.
func Collect(root string) (found Tests, problems []string, err error) {
	found = Tests{}
	known := map[Kind]map[string]bool{}
	for _, k := range Kinds {
		found[k], known[k] = map[string][]Claim{}, map[string]bool{}
		for _, i := range Catalog(k) {
			known[k][i.ID] = true
		}
	}
	err = walk(root, func(file, module string) error {
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return err
		}
		of := inFile
		if strings.HasSuffix(file, page) {
			of = inPage
		}
		claims, bad, err := of(file, src)
		if err != nil {
			return err
		}
		problems = append(problems, bad...)
		for _, c := range claims {
			c.Module = module
			if !known[c.Kind][c.ID] {
				problems = append(problems, fmt.Sprintf("%s: %s claims %s, which is not in the list %s", c.At, c.Test, c.ID, c.Kind))
				continue
			}
			found[c.Kind][c.ID] = append(found[c.Kind][c.ID], c)
		}
		return nil
	})
	return found, problems, err
}

// walk calls visit for each file of tests and page of scenarios below root, with its module.
func walk(root string, visit func(file, module string) error) error {
	modules := map[string]string{} // directory -> directory of its go.mod
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && d.Name() == "testdata":
			pages, err := filepath.Glob(filepath.Join(name, "*"+page))
			for _, p := range pages {
				err = errors.Join(err, visit(path.Join(rel, filepath.Base(p)), modules[path.Dir(rel)]))
			}
			if err != nil {
				return err
			}
			return fs.SkipDir
		case d.IsDir() && rel != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir():
			modules[rel] = modules[path.Dir(rel)]
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil || rel == "." {
				modules[rel] = rel
			}
			return nil
		case !strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		return visit(rel, modules[path.Dir(rel)])
	})
}

var (
	// mark matches a correct line of claims, marked a line that is meant to be one.
	mark   = regexp.MustCompile(`^// (Items|Faults|Attacks|Scenarios|Sidecars): ([A-Z0-9-]+(?:, [A-Z0-9-]+)*)\.$`)
	marked = regexp.MustCompile(`^//\s*(?i:items?|faults?|attacks?|scenarios?|sidecars?):`)
)

// page is the suffix of a page of scenarios.
const page = ".txtar"

// inPage returns the claims of a page of scenarios: lines of its comment, in the form of a
// Go test's claims without the slashes. Its test is the subtest of TestScenario with its name.
func inPage(file string, src []byte) (claims []Claim, problems []string, err error) {
	dir, test := path.Dir(path.Dir(file)), "TestScenario/"+strings.TrimSuffix(path.Base(file), page)
	for i, line := range strings.Split(string(src), "\n") {
		if strings.HasPrefix(line, "-- ") {
			break
		}
		if line = "// " + line; !marked.MatchString(line) {
			continue
		}
		at := fmt.Sprintf("%s:%d", file, i+1)
		m := mark.FindStringSubmatch(line)
		if m == nil {
			problems = append(problems, fmt.Sprintf("%s: %q; write it like 'Items: A02, N-17.'", at, line[3:]))
			continue
		}
		for id := range strings.SplitSeq(m[2], ", ") {
			claims = append(claims, Claim{Kind: Kind(m[1]), ID: id, Dir: dir, Test: test, At: at})
		}
	}
	return claims, problems, nil
}

// inFile returns the claims of one file of tests.
func inFile(file string, src []byte) (claims []Claim, problems []string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			if !marked.MatchString(c.Text) {
				continue
			}
			at := fmt.Sprintf("%s:%d", file, fset.Position(c.Pos()).Line)
			m := mark.FindStringSubmatch(c.Text)
			test := testAt(f, c.Pos())
			switch {
			case m == nil:
				problems = append(problems, fmt.Sprintf("%s: %q; write it like '// Items: A02, N-17.'", at, c.Text))
			case test == "":
				problems = append(problems, at+": a claim outside of a test and its comment")
			default:
				for id := range strings.SplitSeq(m[2], ", ") {
					claims = append(claims, Claim{Kind: Kind(m[1]), ID: id, Dir: path.Dir(file), Test: test, At: at})
				}
			}
		}
	}
	return claims, problems, nil
}

// testAt returns the test whose comment or body is at p.
func testAt(f *ast.File, p token.Pos) string {
	i := slices.IndexFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !isTest(fn.Name.Name) {
			return false
		}
		from := fn.Pos()
		if fn.Doc != nil {
			from = fn.Doc.Pos()
		}
		return from <= p && p < fn.End()
	})
	if i < 0 {
		return ""
	}
	return f.Decls[i].(*ast.FuncDecl).Name.Name
}

func isTest(name string) bool {
	return name != "TestMain" && (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz"))
}
