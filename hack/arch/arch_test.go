package arch

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

type pkg struct {
	ImportPath, Dir, Doc               string
	Imports                            []string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

// packages returns the packages of the program's module and of the agent's, which has the
// same rules.
func packages(t *testing.T) []pkg {
	t.Helper()
	return append(packagesIn(t, root), packagesIn(t, root+"/examples/agent")...)
}

func packagesIn(t *testing.T, dir string) (all []pkg) {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Doc,Imports,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestTreeKeepsItsRules(t *testing.T) {
	all := packages(t)
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	for _, p := range all {
		dir := strings.TrimPrefix(p.ImportPath, Module+"/")
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s: no package comment: one sentence that says what it is for", dir)
		}
		for _, problem := range importProblems(dir, p.Imports) {
			t.Error(problem)
		}
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			for _, problem := range parseFile(t, dir, p.Dir, name).problems() {
				t.Error(problem)
			}
		}
	}
}

// TestFilesOfEveryModuleAreShort checks hack/bench and the tests' modules too. The other
// rules cover the packages that go list finds in the program's module and the agent's.
func TestFilesOfEveryModuleAreShort(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		b, err := os.ReadFile(name)
		if n := strings.Count(string(b), "\n"); n > maxFile {
			t.Errorf("%s: %d lines, more than %d", name, n, maxFile)
		}
		seen[filepath.ToSlash(filepath.Dir(name))] = true
		return err
	})
	if err != nil || !seen[root+"/hack/bench/cmd/fakeapi"] || !seen[root+"/pkg/state"] {
		t.Errorf("files in %d directories were read: %v", len(seen), err)
	}
}

func TestDocumentsSayWhatIsThere(t *testing.T) {
	docs, err := documents(root)
	if err != nil {
		t.Fatal(err)
	}
	problems := slices.Concat(adrProblems(docs), houseProblems(docs["ARCHITECTURE.md"]), roomProblems(docs["ARCHITECTURE.md"]))
	for name, text := range docs {
		problems = append(problems, linkProblems(name, text, func(target string) bool {
			_, err := os.Stat(filepath.Join(root, target))
			return err == nil
		})...)
		problems = append(problems, blockProblems(name, text, func(file string) (string, error) {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
			return string(b), err
		})...)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// TestModulesOfTheTreeAskForNothingOlderThanEachOther finds modules that no longer build,
// such as hack/bench, which depends on the program and is built only for measurements.
func TestModulesOfTheTreeAskForNothingOlderThanEachOther(t *testing.T) {
	mods := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "go.mod" {
			return err
		}
		b, err := os.ReadFile(name)
		dir, _ := filepath.Rel(root, filepath.Dir(name))
		mods[filepath.ToSlash(dir)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(requirements(mods["."])) < 10 || len(requirements(mods["hack/bench/kubelet"])) < 10 {
		t.Fatalf("found %d modules, and not what they require", len(mods))
	}
	for _, problem := range moduleProblems(mods) {
		t.Error(problem)
	}
}

// TestReleaseLeavesOut checks that the program does not link html/template, which calls
// methods by name, and client-go's typed clients, which register each type of the API.
// Each makes the program, and its resident part, a quarter larger.
func TestReleaseLeavesOut(t *testing.T) {
	const tag = "grpcnotrace"
	for _, file := range []string{"Makefile", "hack/dist.sh", "hack/bench/run.sh", "deploy/Dockerfile"} {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		builds := 0
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, " build ") && strings.Contains(line, "./cmd/csi-volmgr") {
				builds++
				if !strings.Contains(line, "-tags "+tag+" ") {
					t.Errorf("%s builds the program without %s: %s", file, tag, line)
				}
			}
		}
		if builds != 1 {
			t.Errorf("%s builds the program %d times", file, builds)
		}
	}
	cmd := exec.Command("go", "list", "-deps", "-tags", tag, "./cmd/csi-volmgr")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "k8s.io/client-go/rest") {
		t.Errorf("client-go is not among the %d packages of the program", len(deps))
	}
	for _, out := range []string{"html/template", "k8s.io/client-go/kubernetes/scheme"} {
		if slices.Contains(deps, out) {
			t.Errorf("%s is in the program", out)
		}
	}
}

func TestModuleRuleCatchesItsBreach(t *testing.T) {
	const root = "module m\n\nrequire a.b/c v1.10.0\nrequire (\n\td.e/f v0.0.0-20260102000000-abc\n\tg.h/i v2.0.0 // indirect\n)\n"
	got := moduleProblems(map[string]string{
		".":   root,
		"x":   "module x\n\nrequire (\n\ta.b/c v1.9.9\n\td.e/f v0.0.0-20251231000000-fff\n\tg.h/i v2.0.1\n\tm v0.0.0\n)\nreplace m => ..\n",
		"y/z": "module z\n\nrequire (\n\ta.b/c v1.10.0\n\tg.h/i v2.0.0-rc.1\n\tm v0.0.0\n)\nreplace (\n\tm => ../..\n\ta.b/c => a.b/c v1.0.0\n)\n",
		"w":   "module w\n\nrequire a.b/c v1.0.0\n\nreplace m => ..\n",
	})
	if len(got) != 3 || !strings.Contains(got[0], "x/go.mod: asks for a.b/c v1.9.9") || !strings.Contains(got[1], "d.e/f") || !strings.Contains(got[2], "y/z/go.mod: asks for g.h/i v2.0.0-rc.1") {
		t.Errorf("%q", got)
	}
}

func parseFile(t *testing.T, dir, at, name string) source {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(at, name))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, dir, name, string(b))
}

func parse(t *testing.T, dir, name, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{dir: dir, name: name, fset: fset, file: f, text: text}
}

// Each line of code breaks one rule, and that rule must report it.
func TestEveryRuleCatchesItsBreach(t *testing.T) {
	long := strings.Repeat("\n", maxFunc)
	for _, tc := range []struct{ rule, dir, file, src, want string }{
		{"clock", "pkg/manager/plan", "a.go", "package plan\nfunc f() { _ = time.Now() }", "does not read the clock"},
		{"clock", "pkg/state", "a.go", "package state\nfunc f() { _ = time.NewTimer(0) }", "does not read the clock"},
		{"sleep", "pkg/manager", "a.go", "package manager\nfunc f() { time.Sleep(1) }", "wait for an event"},
		{"memory journal", "internal/wire", "a.go", "package node\nfunc f() { g(journal.NewMemory()) }", "it is for tests"},
		{"openat2", "internal/kinds", "a.go", "package kinds\nfunc f() { _, _ = unix.Openat2(0, ``, nil) }", "internal/host/beneath opens"},
		{"background", "internal/wire", "a.go", "package node\nfunc f() { g(context.Background()) }", "caller's context"},
		{"TODO context", "cmd/csi-volmgr", "a.go", "package main\nfunc f() { g(context.TODO()) }", "caller's context"},
		{"error text", "internal/wire", "a.go", "package node\nfunc f() bool { return strings.Contains(err.Error(), x) }", "not by its text"},
		{"error text", "internal/wire", "a.go", "package node\nfunc f() bool { return err.Error() == `gone` }", "not by its text"},
		{"reason text", "internal/wire", "a.go", "package node\nfunc f() bool { return strings.HasPrefix(v.Held.Reason, kept) }", "not by its text"},
		{"problem text", "internal/wire", "a.go", "package node\nfunc f() bool { return w.Problem != `gone` }", "not by its text"},
		{"kind", "internal/wire", "a.go", "package node\nfunc f(d string) bool { return d == `kubernetes.io/nfs` }", "internal/wants/kind has"},
		{"path of a kind", "internal/wire", "a.go", "package node\nconst dir = `kubernetes.io/local-volume/mounts`", "internal/wants/kind has"},
		{"code", "internal/wire", "a.go", "package node\nfunc f(c string) bool { return c == `NotFound` }", "state.CodeOf"},
		{"init", "internal/wire", "a.go", "package node\nfunc init() {}", "no init"},
		{"parameters", "internal/wire", "a.go", "package node\nfunc f(a, b, c int, d, e, g string) {}", "6 parameters"},
		{"interface", "internal/wire", "a.go", "package node\ntype i interface{ A(); B(); C(); D(); E(); F() }", "6 methods"},
		{"comment", "internal/wire", "a.go", "package node\n// TO" + "DO: later\n", "unfinished work"},
		{"reason", "internal/wire", "a.go", "package node\n//nolint:all\n", "needs a reason"},
		{"doc", "internal/wire", "a.go", "package node\nfunc F() {}", "F is exported"},
		{"doc", "internal/wire", "a.go", "package node\ntype T struct{}", "T is exported"},
		{"doc", "internal/wire", "a.go", "package node\n// T is.\ntype T[K any] struct{}\nfunc (t *T[K]) M() {}", "M is exported"},
		{"doc", "internal/wire", "a.go", "package node\nvar V = 1", "V is exported"},
		{"file name", "internal/wire", "util.go", "package node", "noun that it holds"},
		{"file name", "internal/wire", "helpers_test.go", "package node", "noun that it holds"},
		{"package name", "internal/wire/common", "a.go", "package common", "what it is for"},
		{"function size", "internal/wire", "a.go", "package node\nfunc f() {" + long + "}", "more than 60"},
		{"file size", "internal/wire", "a.go", "package node\n" + strings.Repeat("var _ = 1\n", maxFile), "more than 400"},
		{"columns", "internal/wire", "a.go", "package node\n\nvar _ = `" + strings.Repeat("é", maxColumns) + "`", "130 columns"},
	} {
		problems := parse(t, tc.dir, tc.file, tc.src).problems()
		if len(problems) != 1 || !strings.Contains(problems[0], tc.want) {
			t.Errorf("%s: got %q, want one problem with %q", tc.rule, problems, tc.want)
		}
	}
}

func TestWhatIsAllowedIsNotReported(t *testing.T) {
	for _, tc := range []struct{ dir, file, src string }{
		{"cmd/csi-volmgr", "main.go", "package main\nfunc Main() { g(context.Background()) }"},
		{"pkg/manager", "a_test.go", "package manager\nfunc TestX(t *testing.T) { time.Sleep(1); g(context.Background()) }"},
		{"internal/host/mount", "mounter.go", "package mount\nfunc f(a, b, c, d, e, f string) { g(context.Background()) }"},
		{"pkg/manager", "a.go", "package manager\nfunc f() bool { return err.Error() == last }"},
		{"pkg/manager", "a.go", "package manager\nfunc f() bool { return v.Held.Reason != `` && p.Problem == `` }"},
		{"pkg/manager", "a.go", "package manager\nfunc f() { _ = time.Now() }"},
		{"pkg/manager", "a.go", "package manager\n// Errors.\nvar (\n\tErrA = 1\n\tErrB = 2\n)"},
		{"pkg/manager", "a.go", "package manager\ntype t struct{}\nfunc (t) Exported() {}\nfunc (t) String() string { return \"\" }"},
		{"pkg/manager", "a.go", "package manager\n//lint:ignore SA1019 the new call lacks it\nfunc f() {}"},
	} {
		if problems := parse(t, tc.dir, tc.file, tc.src).problems(); len(problems) > 0 {
			t.Errorf("%s: %q", tc.src, problems)
		}
	}
}

// What decides and what it decides about link no database: a program of others that imports them gets none.
func TestPureRoomsLinkNoDatabase(t *testing.T) {
	const database = "go.etcd.io/bbolt"
	for dir, linked := range map[string]bool{
		"pkg/state": false, "pkg/manager/plan": false, "pkg/manager": false, "pkg/csiclient": false, "pkg/translate": false,
		"internal/wants/kind": false, "internal/wants/resolve": false, "internal/journal": true,
	} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", Module+"/"+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", dir, err)
		}
		if got := slices.Contains(strings.Fields(string(out)), database); got != linked {
			t.Errorf("%s links %s: %v, want %v", dir, database, got, linked)
		}
	}
}

func TestImportTable(t *testing.T) {
	for _, tc := range []struct {
		dir, imports string
		allowed      bool
	}{
		{"pkg/manager/plan", Module + "/pkg/state", true},
		{"pkg/manager/plan", Module + "/pkg/manager", false},
		{"pkg/manager/plan", "time", true},
		{"pkg/manager/plan", "os", false},
		{"pkg/manager/plan", "log/slog", false},
		{"pkg/manager/plan", "context", false},
		{"internal/wants/resolve", "k8s.io/api/core/v1", true},
		{"internal/wants/resolve", "k8s.io/client-go/kubernetes", false},
		{"pkg/state", Module + "/internal/host/mount", false}, // a house above
		{"internal/host/mount", Module + "/pkg/state", true},
		{"internal/wants/resolve", Module + "/internal/journal", false}, // a house of the same floor
		{"internal/wants/file", Module + "/pkg/manager", true},
		{"pkg/manager", Module + "/pkg/csiclient", false},
		{"pkg/manager", Module + "/pkg/manager/plan", true},
		{"internal/wants/file", Module + "/internal/wants/manifest", true}, // rooms of one house
		{"internal/wants/manifest", Module + "/internal/wants/file", false},
		{"internal/kinds/emptydir", Module + "/internal/kinds/poddir", true},
		{"internal/kinds/emptydir", Module + "/internal/kinds/away", false},
		{"internal/serve/client", Module + "/internal/serve/server", true},
		{"internal/wire", Module + "/pkg/csiclient", true},
		{"internal/wire", Module + "/pkg/node", false},
		{"internal/wire", Module + "/cmd/csi-volmgr/render", false},
		{"internal/wire", Module + "/test/csi-sanity", false},
		{"examples/embed", Module + "/pkg/node", true},
		{"examples/embed", Module + "/internal/wire", false},
		{"test/first", Module + "/test/harness", true},
		{"pkg/manager", Module + "/nowhere", false},
		{"internal/host/mount", "os/exec", false},
		{"internal/localdriver", "os/exec", true},
		{"internal/localdriver", "go.etcd.io/bbolt", false},
		{"pkg/newroom", "fmt", false},
	} {
		if problems := importProblems(tc.dir, []string{tc.imports}); (len(problems) == 0) != tc.allowed {
			t.Errorf("%s imports %s: %q", tc.dir, tc.imports, problems)
		}
	}
}

func TestDocumentRulesCatchTheirBreach(t *testing.T) {
	if p := linkProblems("docs/a.md", "[x](../b.md#c) [y](https://example.org/z) [z](#here)", func(string) bool { return false }); len(p) != 1 || !strings.Contains(p[0], "b.md") {
		t.Errorf("links: %q", p)
	}
	if p := adrProblems(map[string]string{"ARCHITECTURE.md": "[one](docs/adr/0001-one.md)", "docs/adr/0001-one.md": "", "docs/adr/0002-two.md": ""}); len(p) != 1 || !strings.Contains(p[0], "0002") {
		t.Errorf("decisions: %q", p)
	}
	if p := roomProblems("\n| `pkg/state` | x |\n"); len(p) != len(rooms)-1 {
		t.Errorf("rooms: %q", p)
	}
	if p := houseProblems("wire[\"wire: x\"]\nhost[\"<b>host</b>\"]\n| `host` | x |\n\n## The rooms\n| `kinds` | x |"); len(p) != 18 {
		t.Errorf("houses: %d, %q", len(p), p)
	}
}
