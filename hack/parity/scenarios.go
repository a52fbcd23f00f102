package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

const scenarioDocument = "docs/upstream-scenarios.md"

// catalogue is a list of what others do, each with the tests that show it here or a reason.
type catalogue struct {
	kind     items.Kind
	document string
	heading  string // of the table
	column   string // the heading of what the others do
	noun     string
	// shown is how many of them a test must show at least.
	shown int
}

// catalogues has all of them.
func catalogues() []catalogue {
	return []catalogue{
		{
			items.Scenarios, scenarioDocument, "## Every scenario and its test\n", "Kubernetes' test",
			"scenarios", 120,
		},
		{items.Sidecars, "docs/sidecars.md", "## Every behaviour and its test\n", "sidecar", "behaviours", 106},
	}
}

// The results of a scenario; a reason follows differs and notOurs.
const (
	same    = "same"
	differs = "differs: "
	notOurs = "not ours: "
)

// scenario is one of Kubernetes' own storage tests, with the tests that show it here.
type scenario struct {
	id       string
	upstream string   // the file, and what the scenario is about
	want     string   // what is wanted of csi-volmgr
	result   string   // same, differs or notOurs
	tests    []string // "pkg/x TestY", sorted
}

// scenarios reads a list of c, whose titles have three columns that tabs separate,
// and joins it with the claims.
func (c catalogue) scenarios(list []items.Item, claims map[string][]items.Claim) (all []scenario, problems []string) {
	for _, i := range list {
		cells := strings.Split(i.Title, "\t")
		if len(cells) != 3 || slices.Contains(cells, "") {
			problems = append(problems, i.ID+": want what others do, what csi-volmgr does and the result, with tabs between them")
			continue
		}
		s := scenario{id: i.ID, upstream: cells[0], want: cells[1], result: cells[2]}
		for _, c := range claims[i.ID] {
			s.tests = append(s.tests, c.Dir+" "+c.Test)
		}
		slices.Sort(s.tests)
		s.tests = slices.Compact(s.tests)
		problems = append(problems, s.problems()...)
		all = append(all, s)
	}
	if n := len(tested(all)); n < c.shown {
		problems = append(problems, fmt.Sprintf("%d %s have a test, want at least %d", n, c.noun, c.shown))
	}
	return all, problems
}

func (s scenario) problems() []string {
	why, elsewhere := strings.CutPrefix(s.result, notOurs)
	if reason, is := strings.CutPrefix(s.result, differs); is {
		why = reason
	} else if !elsewhere && s.result != same {
		return []string{fmt.Sprintf("%s: result %q, want %q, %q or %q, the last two with why", s.id, s.result, same, differs, notOurs)}
	}
	switch {
	case strings.TrimSpace(why) == "":
		return []string{s.id + ": the result does not say why"}
	case elsewhere && len(s.tests) > 0:
		return []string{fmt.Sprintf("%s is not ours, and %s claims it", s.id, s.tests[0])}
	case !elsewhere && len(s.tests) == 0:
		return []string{s.id + " has no test that claims it"}
	}
	return nil
}

// tested returns the scenarios that a test here shows.
func tested(all []scenario) (of []scenario) {
	for _, s := range all {
		if len(s.tests) > 0 {
			of = append(of, s)
		}
	}
	return of
}

// scenarioTable returns the table as the document has it.
func (c catalogue) table(all []scenario) string {
	var b strings.Builder
	count := map[string]int{}
	for _, s := range all {
		kind, _, _ := strings.Cut(s.result, ":")
		count[kind]++
	}
	fmt.Fprintf(&b, "%d %s: %d the same, %d differ, %d are not csi-volmgr's. `make parity-docs` writes the table.\n\n",
		len(all), c.noun, count["same"], count["differs"], count["not ours"])
	fmt.Fprintf(&b, "| id | %s | what csi-volmgr does | shown by | result |\n| --- | --- | --- | --- | --- |\n", c.column)
	for _, s := range all {
		tests := ""
		if len(s.tests) > 0 {
			tests = "`" + strings.Join(s.tests, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", s.id, s.upstream, s.want, tests, s.result)
	}
	return b.String()
}

// replace puts the table below its heading, to the end of the document.
func (c catalogue) replace(doc string, all []scenario) (string, error) {
	before, _, ok := strings.Cut(doc, c.heading)
	if !ok {
		return "", errors.New("no heading " + strings.TrimSpace(c.heading))
	}
	return before + c.heading + "\n" + c.table(all), nil
}

// print writes the tests that show each scenario.
func (c catalogue) print(w io.Writer, all []scenario) {
	for _, s := range all {
		fmt.Fprintf(w, "%-6s %-60s %s %s\n", s.id, short(s.upstream), s.result, strings.Join(s.tests, ", "))
	}
	fmt.Fprintf(w, "%d %s, %d with a test\n", len(all), c.noun, len(tested(all)))
}

// write rewrites the table of the document.
func (c catalogue) write(root string, all []scenario) error {
	name := filepath.Join(root, filepath.FromSlash(c.document))
	doc, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, err := c.replace(string(doc), all)
	if err != nil {
		return fmt.Errorf("%s: %w", c.document, err)
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
