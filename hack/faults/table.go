package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// outcome is the result of a test: "pass", "fail" or "skip", and for the last two its last
// line of output.
type outcome struct{ result, text string }

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

// read returns the result of each test and subtest: a test fails if one of its subtests
// does, and is skipped only by itself.
func read(r io.Reader) (map[string]outcome, error) {
	went, said := map[string]outcome{}, map[string][]string{}
	dec := json.NewDecoder(r)
	for {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return went, nil
		} else if err != nil {
			return nil, err
		}
		switch e.Action {
		case "output":
			if line := strings.TrimSpace(e.Output); line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
				said[e.Test] = append(said[e.Test], line)
			}
		case "pass", "fail", "skip":
			if e.Test != "" {
				went[e.Test] = outcome{e.Action, last(said[e.Test])}
			}
		}
	}
}

func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// needs parses lines of a fault, a tab and what the fault needs.
func needs(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if id, need, ok := strings.Cut(line, "\t"); ok && !strings.HasPrefix(line, "#") {
			m[id] = need
		}
	}
	return m
}

// row is a fault and its state: "pass", "FAIL", "needs" or "no test".
type row struct {
	items.Item
	state, text string
}

type table []row

// judge determines the state of each fault.
func judge(list []items.Item, claims map[string][]items.Claim, results map[string]outcome, needs map[string]string) table {
	var t table
	for _, i := range list {
		r := row{Item: i, state: "no test"}
		if need := needs[i.ID]; need != "" {
			r.state, r.text = "needs", need
		}
		var passed, other []string
		for _, c := range claims[i.ID] {
			name := c.Dir + " " + c.Test
			switch o := results[name]; o.result {
			case "pass":
				passed = append(passed, name)
			case "skip":
				other = append(other, name+": "+o.text)
			default:
				r.state, r.text = "FAIL", name+": "+o.text
			}
		}
		switch {
		case r.state == "FAIL":
		case len(passed) > 0:
			slices.Sort(passed)
			r.state, r.text = "pass", strings.Join(slices.Compact(passed), ", ")
		case len(other) > 0:
			r.state, r.text = "needs", strings.Join(other, "; ")
		}
		t = append(t, r)
	}
	return t
}

func (t table) count(state string) (n int) {
	for _, r := range t {
		if r.state == state {
			n++
		}
	}
	return n
}

func (t table) print(w io.Writer) {
	for _, r := range t {
		fmt.Fprintf(w, "%-5s %-8s %s\n               %s\n", r.ID, r.state, r.Title, r.text)
	}
	fmt.Fprintf(w, "\n%d pass, %d fail, %d need more than this machine has, %d have no test; %d in all\n",
		t.count("pass"), t.count("FAIL"), t.count("needs"), t.count("no test"), len(t))
}
