package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
)

// The limits of a reader's screen, in lines and columns; a tab is one. Tests may be longer.
const (
	maxFile       = 400
	maxFunc       = 60
	maxColumns    = 120
	maxMethods    = 5
	maxParameters = 5
)

// badNames are names that do not say what the file or package holds.
var badNames = []string{"util", "utils", "helper", "helpers", "common", "misc", "base", "shared", "types2", "impl"}

// codeRoom has the table of gRPC codes: other rooms use it, and spell no code in a text.
const codeRoom = "pkg/state"

var grpcCodes = []string{
	"Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted",
	"FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
}

var (
	unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	silenced   = regexp.MustCompile(`^//\s*(nolint|lint:ignore)\b`)
	reasoned   = regexp.MustCompile(`^//(nolint:\S+ // \S+|lint:ignore \S+ \S+ \S+)`)
)

// source is one parsed file of a package.
type source struct {
	dir  string // of the package, from the root of the module
	name string
	fset *token.FileSet
	file *ast.File
	text string
}

func (s source) at(p token.Pos) string {
	return fmt.Sprintf("%s:%d", filepath.Join(s.dir, s.name), s.line(p))
}

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// problems lists the breaches of rules in the file.
func (s source) problems() (problems []string) {
	problems = slices.Concat(s.names(), s.comments())
	if s.test() {
		return problems
	}
	problems = slices.Concat(problems, s.sizes(), s.shapes(), s.calls())
	if s.file.Name.Name != "main" {
		problems = append(problems, s.undocumented()...)
	}
	return problems
}

func (s source) names() (problems []string) {
	stem := strings.TrimSuffix(strings.TrimSuffix(s.name, ".go"), "_test")
	if slices.Contains(badNames, stem) {
		problems = append(problems, fmt.Sprintf("%s: name the file after the noun that it holds", filepath.Join(s.dir, s.name)))
	}
	if slices.Contains(badNames, s.file.Name.Name) {
		problems = append(problems, fmt.Sprintf("%s: package %s: name it after what it is for", s.dir, s.file.Name.Name))
	}
	return problems
}

func (s source) comments() (problems []string) {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if unfinished.MatchString(c.Text) {
				problems = append(problems, s.at(c.Pos())+": unfinished work is an issue, not a comment")
			}
			if silenced.MatchString(c.Text) && !reasoned.MatchString(c.Text) {
				problems = append(problems, s.at(c.Pos())+": a silenced check needs a reason")
			}
		}
	}
	return problems
}

func (s source) sizes() (problems []string) {
	report := func(what string, n, limit int) {
		if n > limit {
			problems = append(problems, fmt.Sprintf("%s: %d lines, more than %d", what, n, limit))
		}
	}
	report(filepath.Join(s.dir, s.name), s.line(s.file.End()), maxFile)
	for _, decl := range s.file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			report(s.at(f.Pos())+": "+f.Name.Name, s.line(f.End())-s.line(f.Pos())+1, maxFunc)
		}
	}
	if !product(s.dir) {
		return problems
	}
	line := 0
	for text := range strings.Lines(s.text) {
		line++
		if n := utf8.RuneCountInString(strings.TrimRight(text, "\n")); n > maxColumns {
			problems = append(problems, fmt.Sprintf("%s:%d: %d columns, more than %d", filepath.Join(s.dir, s.name), line, n, maxColumns))
		}
	}
	return problems
}

// foreign are files whose functions implement a foreign interface, which
// determines how many parameters they take, and that none of them is a
// context.
var foreign = []string{
	"pkg/csiclient/observe.go",       // grpc.UnaryClientInterceptor
	"internal/host/mount/mounter.go", // k8s.io/mount-utils.Interface
}

func (s source) foreign() bool { return slices.Contains(foreign, s.dir+"/"+s.name) }

// shapes checks functions and interfaces.
func (s source) shapes() (problems []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				problems = append(problems, s.at(n.Pos())+": no init: let main, or a constructor, do it")
			}
			if count := n.Type.Params.NumFields(); count > maxParameters && !s.foreign() {
				problems = append(problems, fmt.Sprintf("%s: %s has %d parameters: take a struct", s.at(n.Pos()), n.Name.Name, count))
			}
		case *ast.InterfaceType:
			if count := n.Methods.NumFields(); count > maxMethods {
				problems = append(problems, fmt.Sprintf("%s: an interface of %d methods: declare what the user of it needs, at most %d", s.at(n.Pos()), count, maxMethods))
			}
		}
		return true
	})
	return problems
}

// clocks are the calls that a timeless room may not make.
var clocks = []string{"time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick"}

// calls checks for calls that the room may not make.
func (s source) calls() (problems []string) {
	r, _ := roomOf(s.dir)
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			call := x.Name + "." + n.Sel.Name
			if why := banned(r, s.file.Name.Name, call); why != "" && !(s.foreign() && call == "context.Background") {
				problems = append(problems, fmt.Sprintf("%s: %s: %s", s.at(n.Pos()), call, why))
			}
		case *ast.CallExpr:
			if byText(n) {
				problems = append(problems, s.at(n.Pos())+": an error is matched with errors.Is or errors.AsType and a reason by its code, not by its text")
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && product(s.dir) {
				problems = append(problems, s.spelt(n, text)...)
			}
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (isErrorText(n.X) && isText(n.Y) || isErrorText(n.Y) && isText(n.X)) {
				problems = append(problems, s.at(n.Pos())+": an error is matched with errors.Is or errors.AsType and a reason by its code, not by its text")
			}
		}
		return true
	})
	return problems
}

// spelt lists the names in texts that belong to another room's table.
func (s source) spelt(n ast.Node, text string) (problems []string) {
	if slices.Contains(grpcCodes, text) && s.dir != codeRoom {
		problems = append(problems, s.at(n.Pos())+": what a gRPC code means is asked of state.CodeOf, not told by its name")
	}
	for _, k := range kind.All() {
		if text == string(k.Name) || strings.HasPrefix(text, string(k.Name)+"/") {
			problems = append(problems, s.at(n.Pos())+": internal/wants/kind has the names of built-in kinds, and what they can do")
		}
	}
	return problems
}

// product reports whether a directory belongs to the program or the library.
func product(dir string) bool {
	return strings.HasPrefix(dir, "pkg/") || strings.HasPrefix(dir, "internal/") || strings.HasPrefix(dir, "cmd/")
}

func banned(r room, pkg, call string) string {
	switch {
	case r.timeless && slices.Contains(clocks, call):
		return "this room does not read the clock: take the time as a parameter"
	case (call == "journal.NewMemory" || call == "journal.Memory") && product(r.dir):
		return "a journal in memory forgets what is mounted: it is for tests"
	case call == "time.Sleep":
		return "wait for an event or a timer, with a context"
	case call == "time.Tick":
		return "nothing polls"
	case call == "unix.Openat2" && r.dir != "internal/host/beneath" && r.dir != "internal/host/mount":
		return "kernels before Linux 5.6 have no openat2: internal/host/beneath opens paths there too"
	case call == "unix.Flock" && r.dir != "internal/host/filelock":
		return "a killed program's child may have the lock for a moment yet: internal/host/filelock outwaits it"
	case call == "context.TODO", call == "context.Background" && pkg != "main":
		return "take the caller's context"
	}
	return ""
}

// byText reports a call such as strings.Contains(err.Error(), "...").
func byText(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && (x.Name == "strings" || x.Name == "regexp") && isErrorText(call.Args[0]) &&
		slices.Contains([]string{"Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Count", "Cut"}, f.Sel.Name)
}

// sentences are fields that hold a text for people: code decides by the code next to it.
var sentences = []string{"Reason", "Error", "Problem", "Message", "BlockedBy"}

func isErrorText(e ast.Expr) bool {
	if f, ok := e.(*ast.SelectorExpr); ok {
		return slices.Contains(sentences, f.Sel.Name)
	}
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "Error"
}

func isText(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING && len(lit.Value) > len(`""`) // comparing with "" is allowed
}

// undocumented lists exported identifiers without a comment. A group of
// constants, variables or types may share one.
func (s source) undocumented() (problems []string) {
	miss := func(p token.Pos, name string) {
		problems = append(problems, fmt.Sprintf("%s: %s is exported and says nothing of itself", s.at(p), name))
	}
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
				miss(d.Pos(), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				name, doc := specDoc(spec)
				if name != nil && d.Doc == nil && doc == nil {
					miss(name.Pos(), name.Name)
				}
			}
		}
	}
	return problems
}

// specDoc returns the first exported name that spec declares, and its comment.
func specDoc(spec ast.Spec) (*ast.Ident, *ast.CommentGroup) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			return spec.Name, spec.Doc
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				if spec.Doc == nil {
					return name, spec.Comment
				}
				return name, spec.Doc
			}
		}
	}
	return nil, nil
}

// exportedReceiver reports whether f is a function or a method of an exported
// type, except the methods that every type of its kind has.
func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	if slices.Contains([]string{"String", "Error", "Unwrap", "Is", "Len", "Less", "Swap", "Push", "Pop"}, f.Name.Name) {
		return false
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch g := t.(type) {
	case *ast.IndexExpr:
		t = g.X
	case *ast.IndexListExpr:
		t = g.X
	}
	name, ok := t.(*ast.Ident)
	return ok && name.IsExported()
}
