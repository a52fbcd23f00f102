// Program parity prints which test shows each item of parity, or why
// csi-volmgr differs on purpose, and fails on an item with neither.
//
// The reasons are in docs/parity.md. -write rewrites its table, and that of
// docs/upstream-scenarios.md, which does the same for Kubernetes' own storage tests, and
// that of docs/sidecars.md, for Kubernetes' sidecars: -run reads these, and fails on a
// case of their tests that the catalogue does not name.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

const document = "docs/parity.md"

func main() {
	root := flag.String("root", ".", "the root of the tree")
	write := flag.Bool("write", false, "write the table of "+document+" anew")
	holes := flag.Bool("holes", false, "print what is missing only")
	tests := flag.Bool("run", false, "run the tests that items cite")
	mutants := flag.Bool("mutants", false, "plant each mutant and run its test, which must fail")
	seed := flag.Uint64("seed", rand.Uint64(), "with -run, chooses the mutants of the sidecars' behaviours")
	flag.Parse()
	ok, err := run(*root, *write, *holes, os.Stdout)
	if err == nil && (*tests || *mutants) {
		var shown bool
		shown, err = show(context.Background(), *root, *tests, *mutants)
		ok = ok && shown
	}
	if err == nil && *tests {
		var shown bool
		shown, err = showSidecars(context.Background(), *root, *seed, os.Stdout)
		ok = ok && shown
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run prints the table and reports whether nothing is wrong.
func run(root string, write, holes bool, out io.Writer) (bool, error) {
	found, problems, err := items.Collect(root)
	if err != nil {
		return false, err
	}
	name := filepath.Join(root, filepath.FromSlash(document))
	doc, err := os.ReadFile(name)
	if err != nil {
		return false, err
	}
	reasons, err := differences(string(doc))
	if err != nil {
		return false, fmt.Errorf("%s: %w", document, err)
	}
	open, otherwise, err := marks(string(doc))
	if err != nil {
		return false, fmt.Errorf("%s: %w", document, err)
	}
	t := compare(items.Catalog(items.Parity), found[items.Parity], reasons)
	t.mark(open, otherwise)
	if write {
		text, err := replaceTable(string(doc), t.markdown())
		if err != nil {
			return false, fmt.Errorf("%s: %w", document, err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return false, err
		}
	}
	t.print(out, holes)
	problems = append(problems, t.problems()...)
	problems = append(problems, staleMutants(root, planted(), found[items.Parity])...)
	problems = append(problems, staleMutants(root, plantedSidecars(), found[items.Sidecars])...)
	for _, c := range catalogues() {
		all, wrong := c.scenarios(items.Catalog(c.kind), found[c.kind])
		problems = append(problems, wrong...)
		if write {
			if err := c.write(root, all); err != nil {
				return false, err
			}
		}
		if !holes {
			c.print(out, all)
		}
	}
	if len(problems) > 0 {
		_, err = fmt.Fprintf(out, "\nwrong:\n  %s\n", strings.Join(problems, "\n  "))
	}
	return len(problems) == 0, err
}

// show runs the tests that items cite, the mutants, or both, and reports whether nothing is
// wrong.
func show(ctx context.Context, root string, tests, mutants bool) (bool, error) {
	found, _, err := items.Collect(root) // run has printed the problems
	if err != nil {
		return false, err
	}
	doc, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(document)))
	if err != nil {
		return false, err
	}
	open, otherwise, err := marks(string(doc))
	if err != nil {
		return false, fmt.Errorf("%s: %w", document, err)
	}
	var problems []string
	if tests {
		t := compare(items.Catalog(items.Parity), found[items.Parity], nil)
		t.mark(open, otherwise)
		problems = append(problems, runCited(ctx, root, t, found[items.Parity], os.Stdout)...)
	}
	if mutants {
		live, err := plantMutants(ctx, root, planted(), os.Stdout)
		if err != nil {
			return false, err
		}
		problems = append(problems, live...)
	}
	if len(problems) > 0 {
		_, err = fmt.Printf("\nwrong:\n  %s\n", strings.Join(problems, "\n  "))
	}
	return len(problems) == 0, err
}
