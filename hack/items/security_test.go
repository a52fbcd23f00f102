package items

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// maxUntested is how many sentences of docs/security.md may be no promise that a test holds: advice, reasons and
// links. It goes down; a new sentence comes with its test.
const maxUntested = 20

// Each sentence and each row of docs/security.md names the tests that hold it, and they exist.
func TestEachSentenceOfTheSecurityPageNamesItsTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	all, problems := promises(string(page))
	tree := testTree{"../..", map[string]string{}}
	untested := map[string]int{}
	for _, p := range all {
		if p.Other != "" {
			untested[p.Other]++
			untested["all"]++
		}
		bad, err := tree.missing(p)
		if err != nil {
			t.Fatal(err)
		}
		problems = append(problems, bad...)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if untested["all"] > maxUntested {
		t.Errorf("%v of %d sentences have no test, %d at the most: give the new sentence a test", untested, len(all), maxUntested)
	}
	t.Logf("%d sentences, without a test: %v", len(all), untested)
}

// A page whose sentence names no test, or one that does not exist, is wrong in each place where a writer may forget it.
func TestSentencesWithoutATestAreFound(t *testing.T) {
	const right = "# A page\n\n**It holds.** It does\nso `well`. Mind it.\n<!-- tests\nIt holds = hack/items TestCatalogs\n" +
		"It does = hack/items TestCatalogs TestListsThatAreWrong; hack/items TestCatalogs\nMind = advice\n-->\n\n" +
		"| a | b |\n| --- | --- |\n| one. Two | x |\n<!-- tests\none = hack/items TestCatalogs\n-->\n"
	tree := testTree{"../..", map[string]string{}}
	for _, c := range []struct{ from, to, want string }{
		{"", "", ""},
		{"Mind it.", "Mind it. More.", `0 lines of tests are of the sentence "More."`},
		{"Mind = advice\n", "", `0 lines of tests are of the sentence "Mind it."`},
		{" Mind it.", "", `0 sentences begin as the line "Mind = advice" says`},
		{"It does = ", "It = ", `2 lines of tests are of the sentence "It holds."`},
		{"Mind = advice", "Mind = ", `found "", want a directory and its tests`},
		{"Mind = advice", "Mind = later", `found "later", want a directory and its tests`},
		{"TestListsThatAreWrong", "TestNoSuchTest", "hack/items has no test TestNoSuchTest"},
		{"TestListsThatAreWrong", "Catalog", "hack/items has no test Catalog"},
		{"hack/items TestCatalogs TestListsThatAreWrong", "no/such TestCatalogs", "no/such has no test TestCatalogs"},
		{"| one. Two | x |", "| one. Two | x |\n| three | y |", `0 lines of tests are of the sentence "three | y |"`},
		{"\n-->\n\n|", "\n-->\n\nIt is new.\n\n|", `no tests are named after "It is new."`},
		{"one = hack/items TestCatalogs\n-->\n", "one = hack/items TestCatalogs\n-->\n\nThe end.\n", `no tests are named after "The end."`},
	} {
		page := strings.Replace(right, c.from, c.to, 1)
		all, problems := promises(page)
		for _, p := range all {
			bad, err := tree.missing(p)
			if err != nil {
				t.Fatal(err)
			}
			problems = append(problems, bad...)
		}
		if found := slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, c.want) }); found != (c.want != "") ||
			c.want == "" && len(problems) > 0 {
			t.Errorf("%q instead of %q: problems %q, want %q", c.to, c.from, problems, c.want)
		}
	}
}
