package failpoint

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

//go:embed process.go.txt
var process []byte

// without are the packages whose calls only have the name of an effect, and why.
var without = map[string]string{
	"internal/kinds/builtins": "its Publish passes the call on to a kind, which has the effects",
	"internal/serve/recorder": "its Remove is of a list in memory",
	"internal/wants/resolve":  "its Expand is of a text",
	"internal/cluster/token":  "its Truncate is of a time",
	"pkg/node":                "its Run runs a node and the server of its API, which have the effects",
}

// effects are the names of the functions whose calls change the host.
var effects = map[string]bool{
	// the journal
	"Commit": true, "CommitBucket": true, "SetBootID": true, "Update": true, "WriteTo": true,
	// calls of drivers
	"NodeStageVolume": true, "NodePublishVolume": true, "NodeUnpublishVolume": true, "NodeUnstageVolume": true, "NodeExpandVolume": true,
	"CreateVolume": true, "DeleteVolume": true, "ControllerExpandVolume": true, "ControllerModifyVolume": true,
	"ControllerPublishVolume": true, "ControllerUnpublishVolume": true, "CreateSnapshot": true, "DeleteSnapshot": true,
	"CreateVolumeGroupSnapshot": true, "DeleteVolumeGroupSnapshot": true,
	"Stage": true, "Publish": true, "Unpublish": true, "Unstage": true, "Expand": true,
	// names
	"Mkdir": true, "Mkdirat": true, "MkdirAll": true, "Rename": true, "Renameat": true, "Renameat2": true, "Symlink": true, "Symlinkat": true,
	"Remove": true, "RemoveAll": true, "Unlinkat": true, "Rmdir": true, "WriteFile": true, "OpenFile": true, "Chmod": true, "Fchmod": true, "Fchownat": true,
	"Truncate": true, "Ftruncate": true, "Fallocate": true, "Sync": true, "Fsync": true, "Fdatasync": true,
	// mounts and devices
	"Mount": true, "Unmount": true, "OpenTree": true, "MoveMount": true, "MountSetattr": true, "Fsopen": true, "Fsmount": true, "FsconfigCreate": true,
	"Bind": true, "Tmpfs": true, "Filesystem": true, "Remount": true, "RemoveTree": true, "SetPropagation": true,
	"ioctl": true, "IoctlLoopConfigure": true, "IoctlSetInt": true, "Run": true, "CombinedOutput": true, "Output": true,
}

// edit is text to insert into a file.
type edit struct {
	at   int
	text string
}

// Build builds csi-volmgr with failpoints into dir, and returns its path and the places.
// The test's directory is two levels below the project's.
func Build(dir string) (program string, places []string, err error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", nil, err
	}
	overlay := map[string]string{}
	put := func(path string, src []byte) error {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay)))
		overlay[path] = to
		return os.WriteFile(to, src, 0o600)
	}
	if err := put(filepath.Join(root, "pkg/failpoint/failpoint.go"), process); err != nil {
		return "", nil, err
	}
	err = eachFile(root, func(rel string) error {
		path := filepath.Join(root, rel)
		src, more, err := instrument(path, rel)
		if err != nil || len(more) == 0 || without[filepath.Dir(rel)] != "" {
			return err
		}
		places = append(places, more...)
		return put(path, src)
	})
	if err != nil {
		return "", nil, err
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		return "", nil, err
	}
	program, err = harness.Build(filepath.Join(dir, "csi-volmgr"), "cmd/csi-volmgr", "-overlay", filepath.Join(dir, "overlay.json"))
	return program, places, err
}

// eachFile visits the program's packages, file by file, but for their tests.
func eachFile(root string, visit func(rel string) error) error {
	for _, top := range []string{"pkg", "internal"} {
		if err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return visit(rel)
		}); err != nil {
			return err
		}
	}
	return nil
}

// instrument returns a file's source with failpoints, and their names.
func instrument(path, rel string) (src []byte, places []string, err error) {
	if src, err = os.ReadFile(path); err != nil {
		return nil, nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	var edits []edit
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		count := map[string]int{}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			for _, stmt := range listOf(n) {
				name := effectOf(stmt)
				if name == "" {
					continue
				}
				count[name]++
				place := fmt.Sprintf("%s %s %s", rel, fn.Name.Name, name)
				if count[name] > 1 {
					place += fmt.Sprintf(" %d", count[name])
				}
				more, names := around(fset, stmt, place)
				edits, places = append(edits, more...), append(places, names...)
			}
			return true
		})
	}
	if len(edits) == 0 {
		return src, nil, nil
	}
	edits = append(edits, edit{fset.Position(f.Name.End()).Offset, fmt.Sprintf("; import failpoint %q", harness.Module+"/pkg/failpoint")})
	slices.SortStableFunc(edits, func(a, b edit) int { return b.at - a.at })
	for _, e := range edits {
		src = slices.Concat(src[:e.at], []byte(e.text), src[e.at:])
	}
	return src, places, nil
}

// listOf returns the statements that n holds directly.
func listOf(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return n.List
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	}
	return nil
}

// effectOf returns the name of the first effect in a statement, without the blocks and
// functions inside it.
func effectOf(stmt ast.Stmt) (name string) {
	switch stmt.(type) {
	case *ast.ExprStmt, *ast.AssignStmt, *ast.IfStmt, *ast.ReturnStmt, *ast.SwitchStmt:
	default:
		return ""
	}
	ast.Inspect(stmt, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt, *ast.FuncLit:
			return false
		case *ast.CallExpr:
			var called string
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				called = f.Sel.Name
			case *ast.Ident:
				called = f.Name
			}
			if name == "" && effects[called] {
				name = called
			}
		}
		return true
	})
	return name
}

// around puts failpoints before and after a statement. If the statement returns from the
// function, the failpoint after it is a deferred call.
func around(fset *token.FileSet, stmt ast.Stmt, place string) (edits []edit, names []string) {
	from, to := fset.Position(stmt.Pos()).Offset, fset.Position(stmt.End()).Offset
	before, after := place+" before", place+" after"
	text := fmt.Sprintf("failpoint.Hit(%q); ", before)
	names = []string{before}
	switch s := stmt.(type) {
	case *ast.ReturnStmt:
		text += fmt.Sprintf("defer failpoint.Hit(%q); ", after)
		names = append(names, after)
	case *ast.ExprStmt, *ast.AssignStmt:
		edits = append(edits, edit{to, fmt.Sprintf("; failpoint.Hit(%q)", after)})
		names = append(names, after)
	case *ast.IfStmt:
		if s.Else == nil {
			edits = append(edits, edit{to, fmt.Sprintf("; failpoint.Hit(%q)", after)})
			names = append(names, after)
		}
	}
	return append(edits, edit{from, text}), names
}
