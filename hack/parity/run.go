package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// apart returns the make target for a directory whose tests need something that make prepares:
// a control plane, a virtual machine, a runtime. For other directories it returns "".
func apart(dir string) string {
	switch dir {
	case "test/cluster":
		return "make test-cluster"
	case "test/vm", "test/vm/guest":
		return "make test-vm"
	case "test/docker":
		return "make test-docker"
	}
	return ""
}

// runCited runs the tests that items cite, a package at a time, and prints the result of
// each item. A test that does not exist, is skipped or fails is a problem.
func runCited(ctx context.Context, root string, t table, claims map[string][]items.Claim, out io.Writer) (problems []string) {
	cited := map[string][]string{}
	for _, c := range slices.Concat(slices.Collect(maps.Values(claims))...) {
		if apart(c.Dir) == "" {
			cited[c.Dir] = append(cited[c.Dir], c.Test)
		}
	}
	became := map[string]string{} // "pkg/x TestY" -> pass, fail, skip or not run
	for _, dir := range slices.Sorted(maps.Keys(cited)) {
		results, _ := runTests(ctx, root, dir, cited[dir])
		for _, test := range cited[dir] {
			became[dir+" "+test] = outcome(results, test)
		}
	}
	for _, l := range t.lines {
		verdict, why := l.verdict(became)
		if verdict == "" {
			continue
		}
		fmt.Fprintf(out, "%-6s %-60s %s\n", l.ID, short(l.Title), verdict)
		for _, w := range why {
			problems = append(problems, l.ID+": "+w)
		}
	}
	return problems
}

// outcome returns the result of a test; a skipped part makes it skipped.
func outcome(results map[string]string, test string) string {
	top, _, below := strings.Cut(test, "/")
	switch {
	case results[test] == "":
		return "not run"
	case results[test] == "pass" && !below && results[top+skipped] != "":
		return "skip of " + results[top+skipped]
	}
	return results[test]
}

// verdict returns pass, part or fail for an item with tests, and why it fails. It
// names the targets that run those tests of the item that do not run here.
func (l line) verdict(became map[string]string) (verdict string, why []string) {
	if !l.tested() {
		return "", nil
	}
	var others []string
	ran := false
	for _, test := range l.tests {
		dir, _, _ := strings.Cut(test, " ")
		if target := apart(dir); target != "" {
			others = append(others, target)
			continue
		}
		ran = true
		if got := became[test]; got != "pass" {
			why = append(why, test+": "+got)
		}
	}
	switch {
	case len(why) > 0:
		return "FAIL", why
	case !ran:
		verdict = "not run here"
	case l.part != "":
		verdict = "part"
	case l.other != "":
		verdict = "pass but for one condition"
	default:
		verdict = "pass"
	}
	if len(others) > 0 {
		slices.Sort(others)
		verdict += "; more by " + strings.Join(slices.Compact(others), ", ")
	}
	return verdict, nil
}
