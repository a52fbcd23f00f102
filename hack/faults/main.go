// Program faults runs the tests that claim faults (see hack/items), or with -list=Attacks
// attacks, and prints the result of each fault, or what its tests need that this machine
// lacks. It fails when one of the tests does.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

//go:embed needs.txt
var needsText string

func main() {
	root := flag.String("root", ".", "the root of the tree")
	timeout := flag.String("timeout", "30m", "for the tests of one package")
	list := flag.String("list", string(items.Faults), "Faults or Attacks")
	flag.Parse()
	if !slices.Contains([]items.Kind{items.Faults, items.Attacks}, items.Kind(*list)) {
		fmt.Fprintf(os.Stderr, "faults: -list=%s: want Faults or Attacks\n", *list)
		os.Exit(2)
	}
	failed, err := run(*root, *timeout, items.Kind(*list))
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func run(root, timeout string, list items.Kind) (failed bool, err error) {
	found, problems, err := items.Collect(root)
	if err != nil {
		return false, err
	}
	if len(problems) > 0 {
		return false, fmt.Errorf("claims: %s", strings.Join(problems, "; "))
	}
	results := map[string]outcome{}
	for _, s := range suites(found[list]) {
		if err := s.run(root, timeout, results); err != nil {
			return false, err
		}
	}
	t := judge(items.Catalog(list), found[list], results, needs(needsText))
	t.print(os.Stdout)
	return t.count("FAIL") > 0, nil
}

// suite has the tests of one package that claim something.
type suite struct {
	dir, module string
	tests       []string
}

// suites groups the claims by package, in order.
func suites(claims map[string][]items.Claim) []suite {
	by := map[string]*suite{}
	for _, list := range claims {
		for _, c := range list {
			if by[c.Dir] == nil {
				by[c.Dir] = &suite{dir: c.Dir, module: c.Module}
			}
			by[c.Dir].tests = append(by[c.Dir].tests, c.Test)
		}
	}
	var all []suite
	for _, s := range by {
		slices.Sort(s.tests)
		s.tests = slices.Compact(s.tests)
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b suite) int { return strings.Compare(a.dir, b.dir) })
	return all
}

// functions returns the tests' functions: a page of scenarios is a subtest of one.
func (s suite) functions() (names []string) {
	for _, test := range s.tests {
		name, _, _ := strings.Cut(test, "/")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// special returns the build tag of a directory's tests, and what this machine lacks to run them.
func special(dir string) (tag, lacks string) {
	switch dir {
	case "test/cluster":
		if os.Getenv("KUBE_BINARY") == "" || os.Getenv("SIDECARS") == "" || os.Getenv("AGENT_BINARY") == "" {
			lacks = "KUBE_BINARY, SIDECARS, AGENT_BINARY: a control plane, the sidecars of drivers and examples/agent, which make test-cluster builds"
		}
		return "cluster", lacks
	case "test/vm":
		if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
			lacks = "qemu-system-x86_64: make test-vm runs it in a virtual machine"
		}
		return "vm", lacks
	}
	return "", ""
}

// run runs the tests of a suite and adds their results, by "dir test".
func (s suite) run(root, timeout string, results map[string]outcome) error {
	rel, err := filepath.Rel(filepath.FromSlash(s.module), filepath.FromSlash(s.dir))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %d tests\n", s.dir, len(s.tests))
	tag, lacks := special(s.dir)
	if lacks != "" {
		for _, test := range s.tests {
			results[s.dir+" "+test] = outcome{result: "skip", text: lacks}
		}
		return nil
	}
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout="+timeout, "-tags="+tag,
		"-run=^("+strings.Join(s.functions(), "|")+")$", "./"+path.Clean(filepath.ToSlash(rel)))
	cmd.Dir = filepath.Join(root, filepath.FromSlash(s.module))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	went, readErr := read(out)
	_, _ = io.Copy(io.Discard, out) // after a read error, so that go test can end
	_ = cmd.Wait()                  // the output says which tests failed
	if readErr != nil {
		return fmt.Errorf("%s: %w", s.dir, readErr)
	}
	for _, test := range s.tests {
		o, ok := went[test]
		if !ok {
			o = outcome{result: "fail", text: "it did not run; see: go test ./" + s.dir}
		}
		results[s.dir+" "+test] = o
	}
	return nil
}
