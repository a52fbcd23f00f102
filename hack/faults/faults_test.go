package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

const output = `{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"skip","Test":"TestA/one"}
{"Action":"pass","Test":"TestA"}
{"Action":"output","Test":"TestB","Output":"    b_test.go:1: no device mapper\n"}
{"Action":"output","Test":"TestB","Output":"--- SKIP: TestB\n"}
{"Action":"skip","Test":"TestB"}
{"Action":"output","Test":"TestC","Output":"    c_test.go:1: broken\n"}
{"Action":"fail","Test":"TestC"}
{"Action":"fail"}
`

func TestHowEachFaultStands(t *testing.T) {
	went, err := read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]outcome{}
	for test, o := range went {
		results["d "+test] = o
	}
	claim := func(tests ...string) (list []items.Claim) {
		for _, test := range tests {
			list = append(list, items.Claim{Dir: "d", Test: test})
		}
		return list
	}
	var list []items.Item
	for _, id := range []string{"A001", "A002", "A003", "A004", "A005", "A006", "A007"} {
		list = append(list, items.Item{ID: id, Title: "t"})
	}
	claims := map[string][]items.Claim{
		"A001": claim("TestA"), "A002": claim("TestB"), "A003": claim("TestC", "TestA"),
		"A006": claim("TestB", "TestA"), "A007": claim("TestNotRun"),
	}
	var got []string
	for _, r := range judge(list, claims, results, needs("# words\nA004\ta week\nA001\ta week\n")) {
		got = append(got, strings.TrimSpace(r.ID+" "+r.state+" "+r.text))
	}
	want := []string{
		"A001 pass d TestA", "A002 needs d TestB: b_test.go:1: no device mapper", "A003 FAIL d TestC: c_test.go:1: broken",
		"A004 needs a week", "A005 no test", "A006 pass d TestA", "A007 FAIL d TestNotRun:",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTestsAreRunOncePackageByPackage(t *testing.T) {
	claims := map[string][]items.Claim{
		"A001": {{Dir: "b", Test: "TestY"}, {Dir: "a", Test: "TestX"}},
		"A002": {{Dir: "b", Test: "TestY"}, {Dir: "b", Test: "TestA"}},
	}
	got := suites(claims)
	if len(got) != 2 || got[0].dir != "a" || got[1].dir != "b" || !slices.Equal(got[1].tests, []string{"TestA", "TestY"}) {
		t.Errorf("suites %+v", got)
	}
}

// Every need belongs to a fault that exists.
func TestNeeds(t *testing.T) {
	for id := range needs(needsText) {
		if !slices.ContainsFunc(items.Catalog(items.Faults), func(i items.Item) bool { return i.ID == id }) {
			t.Errorf("needs.txt: %s is no fault", id)
		}
	}
}
