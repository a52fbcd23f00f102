package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// most is the largest number of items that may differ on purpose.
const most = 15

// line is one item with its tests and reasons.
type line struct {
	items.Item
	tests  []string // "pkg/x TestY", sorted
	reason string
	part   string // what is missing if the item is met in part
	other  string // the one condition that differs on purpose, if there is one
}

// table is the list of items with their tests and reasons.
type table struct {
	lines   []line
	unknown []string // items with a reason that are in no list
}

// compare joins the list with the claims and the reasons.
func compare(list []items.Item, claims map[string][]items.Claim, reasons map[string]string) table {
	var t table
	for _, i := range list {
		l := line{Item: i, reason: reasons[i.ID]}
		for _, c := range claims[i.ID] {
			l.tests = append(l.tests, c.Dir+" "+c.Test)
		}
		slices.Sort(l.tests)
		l.tests = slices.Compact(l.tests)
		t.lines = append(t.lines, l)
	}
	for id := range reasons {
		if !slices.ContainsFunc(list, func(i items.Item) bool { return i.ID == id }) {
			t.unknown = append(t.unknown, id)
		}
	}
	slices.Sort(t.unknown)
	return t
}

// mark adds what items that are met in part lack, and the conditions that differ.
func (t *table) mark(parts, others map[string]string) {
	left := maps.Clone(parts)
	maps.Copy(left, others)
	for i := range t.lines {
		l := &t.lines[i]
		l.part, l.other = parts[l.ID], others[l.ID]
		delete(left, l.ID)
	}
	t.unknown = slices.Sorted(slices.Values(append(t.unknown, slices.Collect(maps.Keys(left))...)))
}

func (t table) count(is func(line) bool) (n int) {
	for _, l := range t.lines {
		if is(l) {
			n++
		}
	}
	return n
}

func (l line) tested() bool { return len(l.tests) > 0 }
func (l line) open() bool   { return l.tested() && l.part != "" }
func (l line) otherwise() bool {
	return l.tested() && l.other != ""
}
func (l line) met() bool     { return l.tested() && l.part == "" && l.other == "" }
func (l line) differs() bool { return !l.tested() && l.reason != "" }
func (l line) hole() bool    { return !l.tested() && l.reason == "" }

// problems lists the items that are in no valid state.
func (t table) problems() (problems []string) {
	var holes []string
	for _, l := range t.lines {
		if l.hole() {
			holes = append(holes, l.ID)
		}
		if l.tested() && l.reason != "" {
			problems = append(problems, fmt.Sprintf("%s differs on purpose, and %s claims it", l.ID, l.tests[0]))
		}
	}
	if len(holes) > 0 {
		problems = append(problems, fmt.Sprintf("%d items with neither test nor reason: %s", len(holes), strings.Join(holes, " ")))
	}
	if n := t.count(func(l line) bool { return l.reason != "" }); n > most {
		problems = append(problems, fmt.Sprintf("%d items differ on purpose; at most %d may", n, most))
	}
	for _, id := range t.unknown {
		problems = append(problems, fmt.Sprintf("%s: a reason for %s, which is in no list", document, id))
	}
	return problems
}

// print writes the table and the counts of each area.
func (t table) print(w io.Writer, holes bool) {
	for _, l := range t.lines {
		switch {
		case l.hole():
			fmt.Fprintf(w, "%-6s %-60s HOLE\n", l.ID, short(l.Title))
		case l.open():
			fmt.Fprintf(w, "%-6s %-60s part: %s\n", l.ID, short(l.Title), l.part)
		case holes:
		case l.otherwise():
			fmt.Fprintf(w, "%-6s %-60s otherwise: %s\n", l.ID, short(l.Title), l.other)
		case l.differs():
			fmt.Fprintf(w, "%-6s %-60s differs: %s\n", l.ID, short(l.Title), l.reason)
		default:
			fmt.Fprintf(w, "%-6s %-60s %s\n", l.ID, short(l.Title), strings.Join(l.tests, ", "))
		}
	}
	fmt.Fprintf(w, "\n%-6s %6s %9s %6s %7s %6s %6s\n", "area", "met", "otherwise", "part", "differs", "holes", "items")
	for _, area := range append(t.areas(), "all") {
		in := func(is func(line) bool) int {
			return t.count(func(l line) bool { return (area == "all" || l.Area() == area) && is(l) })
		}
		fmt.Fprintf(w, "%-6s %6d %9d %6d %7d %6d %6d\n", area, in(line.met), in(line.otherwise), in(line.open), in(line.differs),
			in(line.hole), in(func(line) bool { return true }))
	}
}

func (t table) areas() (areas []string) {
	for _, l := range t.lines {
		if !slices.Contains(areas, l.Area()) {
			areas = append(areas, l.Area())
		}
	}
	return areas
}

func short(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}
