// Program arches checks that the packages it is given, with their tests and everything they import, are correct Go for
// each architecture that csi-volmgr is built for: arches PACKAGES...
//
// The compiler's type rules are what differs between architectures: the sizes of int and of the kernel's structures.
// go vet would compile all imports for each, which takes minutes without a build cache; to read their declarations
// takes seconds. The tests that run in an emulator (make test-emulated) are vetted and compiled as any.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// arches returns those that Kubernetes and the CSI sidecars are published for, and riscv64. go vet covers this machine's.
func arches() []string { return []string{"amd64", "arm64", "arm", "ppc64le", "riscv64", "s390x"} }

func main() {
	failed := false
	for _, arch := range arches() {
		if arch == runtime.GOARCH {
			continue
		}
		problems, err := check(".", arch, os.Args[1:])
		if err != nil {
			problems = append(problems, err)
		}
		for _, problem := range problems {
			fmt.Fprintf(os.Stderr, "%s: %v\n", arch, problem)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// unit is a package as go list describes it, or a variant of one for a test.
type unit struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string
	Module     *struct{ Main bool }
}

// check type-checks packages of the module in dir and returns what is wrong with them.
func check(dir, arch string, packages []string) (problems []error, err error) {
	list := exec.Command("go", append([]string{
		"list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module",
	}, packages...)...)
	list.Dir, list.Stderr = dir, os.Stderr
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARM=7", "GOARCH="+arch)
	out, err := list.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := list.Start(); err != nil {
		return nil, err
	}
	c := checker{arch: arch, files: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for units := json.NewDecoder(out); err == nil; {
		var u unit
		if err = units.Decode(&u); err == nil {
			err = c.check(u) // go list names a package after all that it imports
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return c.problems, errors.Join(err, list.Wait())
}

type checker struct {
	arch     string
	files    *token.FileSet
	done     map[string]*types.Package
	problems []error
}

func (c *checker) check(u unit) error {
	if u.ImportPath == "unsafe" || strings.HasSuffix(u.ImportPath, ".test") { // the latter is generated
		return nil
	}
	var parsed []*ast.File
	for _, name := range u.GoFiles {
		file, err := parser.ParseFile(c.files, filepath.Join(u.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, file)
	}
	ours := u.Module != nil && u.Module.Main
	config := types.Config{
		IgnoreFuncBodies: !ours,
		Sizes:            types.SizesFor("gc", c.arch),
		Importer: importer(func(path string) (*types.Package, error) {
			if variant, ok := u.ImportMap[path]; ok {
				path = variant
			}
			if p := c.done[path]; p != nil {
				return p, nil
			}
			return nil, fmt.Errorf("go list does not name %s", path)
		}),
		Error: func(err error) {
			if ours {
				c.problems = append(c.problems, err)
			}
		},
	}
	path, _, _ := strings.Cut(u.ImportPath, " ") // "a/b [a/b.test]" is a variant of a/b
	c.done[u.ImportPath], _ = config.Check(path, c.files, parsed, nil)
	return nil
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }
