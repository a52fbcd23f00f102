package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

const (
	scenarioDocument = "docs/upstream-scenarios.md"
	scenarioHeading  = "## Every scenario and its test\n"
	// shown is how many scenarios a test must show at least.
	shown = 120
)

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

// scenarios reads the list, whose titles have three columns that tabs separate,
// and joins it with the claims.
func scenarios(list []items.Item, claims map[string][]items.Claim) (all []scenario, problems []string) {
	for _, i := range list {
		cells := strings.Split(i.Title, "\t")
		if len(cells) != 3 || slices.Contains(cells, "") {
			problems = append(problems, i.ID+": want what Kubernetes tests, what csi-volmgr does and the result, with tabs between them")
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
	if n := len(tested(all)); n < shown {
		problems = append(problems, fmt.Sprintf("%d scenarios have a test, want at least %d", n, shown))
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
func scenarioTable(all []scenario) string {
	var b strings.Builder
	count := map[string]int{}
	for _, s := range all {
		kind, _, _ := strings.Cut(s.result, ":")
		count[kind]++
	}
	fmt.Fprintf(&b, "%d scenarios: %d the same, %d differ, %d are not csi-volmgr's. `make parity-docs` writes the table.\n\n",
		len(all), count["same"], count["differs"], count["not ours"])
	b.WriteString("| id | Kubernetes' test | what csi-volmgr does | shown by | result |\n| --- | --- | --- | --- | --- |\n")
	for _, s := range all {
		tests := ""
		if len(s.tests) > 0 {
			tests = "`" + strings.Join(s.tests, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", s.id, s.upstream, s.want, tests, s.result)
	}
	return b.String()
}

// replaceScenarios puts the table below its heading, to the end of the document.
func replaceScenarios(doc string, all []scenario) (string, error) {
	before, _, ok := strings.Cut(doc, scenarioHeading)
	if !ok {
		return "", errors.New("no heading " + strings.TrimSpace(scenarioHeading))
	}
	return before + scenarioHeading + "\n" + scenarioTable(all), nil
}

// printScenarios writes the tests that show each scenario.
func printScenarios(w io.Writer, all []scenario) {
	for _, s := range all {
		fmt.Fprintf(w, "%-6s %-60s %s %s\n", s.id, short(s.upstream), s.result, strings.Join(s.tests, ", "))
	}
	fmt.Fprintf(w, "%d scenarios, %d with a test\n", len(all), len(tested(all)))
}
