package arch

import (
	"go/ast"
	"path/filepath"
	"testing"
)

// maxLoopPlaces is the number of places in which the tests of pkg/manager may use the loop
// directly: to stall it, to ask how much it holds, and to take its steps one at a time. It
// goes down, never up: a scenario is a page of pkg/manager/testdata or calls the Manager.
const maxLoopPlaces = 3

func TestFewTestsReachIntoTheLoop(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "pkg/manager", "*_test.go"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	places := 0
	for _, name := range names {
		places += loopPlaces(parseFile(t, "pkg/manager", filepath.Dir(name), filepath.Base(name)).file)
	}
	if places > maxLoopPlaces {
		t.Errorf("tests of pkg/manager hold the loop in %d places, %d at the most: ask the Manager, or write a page", places, maxLoopPlaces)
	}
}

// loopPlaces counts the places in a file that make a loop, or post a function to it.
func loopPlaces(f *ast.File) (places int) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			if fun.Name == "newLoop" {
				places++
			}
		case *ast.SelectorExpr:
			if fun.Sel.Name == "post" {
				places++
			}
		}
		return true
	})
	return places
}

func TestPlacesThatHoldTheLoopAreCounted(t *testing.T) {
	s := parse(t, "pkg/manager", "a_test.go", "package manager\nfunc f(m *Manager) { newLoop(m); m.post(func(*loop) {}); m.SetPod(p); post(m) }")
	if n := loopPlaces(s.file); n != 2 {
		t.Errorf("%d places, want 2", n)
	}
}
