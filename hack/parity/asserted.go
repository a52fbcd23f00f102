package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const assertedHeading = "## What those tests look for in events and errors\n"

// A string that Kubernetes' storage tests look for is ours, and then its words are in a string
// of this program, or it has another reason.
const ours = "ours"

// assertedIn returns the strings that the storage tests of Kubernetes, whose tree is at root, look
// for in events and in what a container waits for: reasons and parts of messages.
func assertedIn(root string) (map[string]bool, error) {
	a := asserted{found: map[string]bool{}, reasons: map[string]string{}}
	for _, dir := range []string{"pkg/kubelet/events", "pkg/controller/volume/events"} {
		if err := eachFile(filepath.Join(root, dir), a.readReasons); err != nil {
			return nil, err
		}
	}
	err := eachFile(filepath.Join(root, "test/e2e/storage"), func(file *ast.File) {
		for _, decl := range file.Decls {
			at := a
			at.file, at.in = file, decl
			ast.Inspect(decl, at.look)
		}
	})
	return a.found, err
}

// eachFile calls f with each Go file below dir, without those of tests.
func eachFile(dir string, f func(*ast.File)) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			f(file)
		}
		return err
	})
}

// asserted looks for such strings in a declaration of a file.
type asserted struct {
	file    *ast.File
	in      ast.Decl
	found   map[string]bool
	reasons map[string]string // of the packages named events, by their constants
}

// readReasons reads the constants of a package of event reasons.
func (a asserted) readReasons(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok && len(s.Names) == 1 && len(s.Values) == 1 {
			a.reasons[s.Names[0].Name] = literal(s.Values[0])
		}
		return true
	})
}

// look notes what a node of the syntax tree looks for.
func (a asserted) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		switch name := selected(n.Fun); {
		case name == "WaitTimeoutForEvent" && len(n.Args) == 6:
			a.add(n.Args[4])
		case name == "Contains" && len(n.Args) == 2 && isMessage(n.Args[0]):
			a.add(n.Args[1])
		}
	case *ast.BinaryExpr:
		if x, ok := n.X.(*ast.SelectorExpr); ok && x.Sel.Name == "Reason" && selected(x.X) == "Waiting" {
			a.add(n.Y)
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.BasicLit); ok && key.Value == `"reason"` {
			a.add(n.Value)
		}
	}
	return true
}

func isMessage(x ast.Expr) bool {
	s, ok := x.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Message" && (selected(s.X) == "event" || selected(s.X) == "Waiting")
}

// selected returns the last name of an expression.
func selected(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// add notes the strings that an expression can be: a literal or a format, or all of them that
// are given to the variable or field.
func (a asserted) add(x ast.Expr) {
	switch x := x.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(x.Value); err == nil && s != "" {
			a.found[s] = true
		}
	case *ast.CallExpr:
		if len(x.Args) > 0 { // fmt.Sprintf, string
			a.add(x.Args[0])
		}
	case *ast.BinaryExpr:
		a.add(x.Y)
	case *ast.SelectorExpr:
		if of, ok := x.X.(*ast.Ident); ok && (of.Name == "events" || of.Name == "volevents") {
			a.found[a.reasons[x.Sel.Name]] = true
			return
		}
		a.given(a.file, x.Sel.Name)
	case *ast.Ident:
		a.given(a.in, x.Name)
		for _, decl := range a.file.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				a.given(g, x.Name)
			}
		}
	}
}

// given notes what is given to a name below a node.
func (a asserted) given(below ast.Node, name string) {
	ast.Inspect(below, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == name && len(n.Rhs) == len(n.Lhs) {
					a.add(n.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if id.Name == name && i < len(n.Values) {
					a.add(n.Values[i])
				}
			}
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok && id.Name == name {
				a.add(n.Value)
			}
		}
		return true
	})
}

// wordsOf returns the string literals of the program's files below the directories, without those
// of tests; literals that are added are one.
func wordsOf(dirs ...string) (all []string, err error) {
	for _, dir := range dirs {
		err = errors.Join(err, eachFile(dir, func(file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				if x, ok := n.(ast.Expr); ok {
					if s := literal(x); s != "" {
						all = append(all, s)
					}
				}
				return true
			})
		}))
	}
	return all, err
}

func literal(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		if x.Op == token.ADD {
			return literal(x.X) + literal(x.Y)
		}
	}
	return ""
}

// assertedRows reads the table below assertedHeading: each string, and whether it is ours or why not.
func assertedRows(doc string) (map[string]string, error) {
	_, rest, ok := strings.Cut(doc, assertedHeading)
	if !ok {
		return nil, fmt.Errorf("no heading %q", strings.TrimSpace(assertedHeading))
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	table := map[string]string{}
	for row := range strings.Lines(rest) {
		cells := strings.Split(strings.TrimSpace(row), "|")
		if len(cells) != 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		why := strings.TrimSpace(cells[2])
		if why == "" {
			return nil, fmt.Errorf("%s: neither ours nor a reason", cells[1])
		}
		table[strings.Trim(strings.TrimSpace(cells[1]), "`")] = why
	}
	return table, nil
}

// unmet returns what is wrong with the table of a document: a string that is said to be ours and
// is in none of our words, and, if the tests were read, one that the table lacks or that no test
// looks for.
func unmet(table map[string]string, words []string, looked map[string]bool) (problems []string) {
	for _, s := range slices.Sorted(maps.Keys(table)) {
		has := func(word string) bool { return strings.Contains(word, s) }
		if table[s] == ours && !slices.ContainsFunc(words, has) {
			problems = append(problems, fmt.Sprintf("%q is in no string of the program", s))
		}
		if looked != nil && !looked[s] {
			problems = append(problems, fmt.Sprintf("%q is looked for by no test", s))
		}
	}
	for _, s := range slices.Sorted(maps.Keys(looked)) {
		if _, known := table[s]; !known {
			problems = append(problems, fmt.Sprintf("%q is looked for by a test, and is not in %s", s, scenarioDocument))
		}
	}
	return problems
}
