package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

const sampleDoc = `# Parity

` + differHeading + `
| item | what we do, and why |
| --- | --- |
| A02, A03 | for a reason |
| B01 | for another |

` + otherHeading + `
| item | what is otherwise |
| --- | --- |
| A06 | later |

` + partHeading + `
| item | what is missing |
| --- | --- |
| A05 | a half |

` + tableHeading + `
a stale line
`

func TestDifferencesAreReadFromTheDocument(t *testing.T) {
	got, err := differences(sampleDoc)
	want := map[string]string{"A02": "for a reason", "A03": "for a reason", "B01": "for another"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for doc, want := range map[string]string{
		"# nothing": "no heading",
		strings.Replace(sampleDoc, "for a reason", "", 1): "A02, A03: no reason",
		strings.Replace(sampleDoc, "B01", "A03", 1):       "A03: two reasons",
	} {
		if _, err := differences(doc); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestWhatIsWrongWithATable(t *testing.T) {
	list := []items.Item{{ID: "A01", Title: "one", Whole: "the first | or none"}, {ID: "A02", Title: "two"}, {ID: "B01", Title: "three"}}
	claim := func(id string) map[string][]items.Claim {
		return map[string][]items.Claim{id: {{Dir: "pkg/x", Test: "TestB"}, {Dir: "pkg/x", Test: "TestA"}, {Dir: "pkg/x", Test: "TestA"}}}
	}
	tab := compare(list, claim("A01"), map[string]string{"A02": "because"})
	if got := tab.problems(); len(got) != 1 || got[0] != "1 items with neither test nor reason: B01" {
		t.Errorf("problems %q", got)
	}
	if got := tab.markdown(); !strings.Contains(got, "| A01 | one | the first \\| or none | `pkg/x TestA`, `pkg/x TestB` |") || !strings.Contains(got, "| B01 | three |  | missing |") {
		t.Errorf("table %s", got)
	}
	got := strings.Join(compare(list, claim("A02"), map[string]string{"A02": "because", "Z01": "x"}).problems(), "\n")
	for _, want := range []string{"A02 differs on purpose, and pkg/x TestA claims it", "a reason for Z01, which is in no list"} {
		if !strings.Contains(got, want) {
			t.Errorf("problems %s, want %s", got, want)
		}
	}
	var many []items.Item
	reasons := map[string]string{}
	for _, i := range items.Catalog(items.Parity)[:most+1] {
		many, reasons[i.ID] = append(many, i), "because"
	}
	if got := compare(many, nil, reasons).problems(); len(got) != 1 || got[0] != "16 items differ on purpose; at most 15 may" {
		t.Errorf("problems %q", got)
	}
}

// An item that is met in part does not count as met, and its row says so.
func TestAnItemThatIsMetInPartIsOpen(t *testing.T) {
	list := []items.Item{{ID: "A01", Title: "one"}, {ID: "A02", Title: "two"}}
	claim := []items.Claim{{Dir: "pkg/x", Test: "TestA"}}
	open, otherwise, err := marks(strings.Replace(sampleDoc, "A05", "A02, Z01", 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := marks(strings.Replace(sampleDoc, "A05", "A06", 1)); err == nil {
		t.Error("an item in both tables is taken")
	}
	list = append(list, items.Item{ID: "A06", Title: "six"})
	tab := compare(list, map[string][]items.Claim{"A01": claim, "A02": claim, "A06": claim}, nil)
	tab.mark(open, otherwise)
	if tab.count(line.met) != 1 || tab.count(line.open) != 1 || !tab.lines[1].open() || tab.count(line.otherwise) != 1 {
		t.Errorf("%+v, want A02 open, A06 otherwise and A01 met", tab.lines)
	}
	if !strings.Contains(tab.markdown(), "| A06 | six |  | one condition otherwise, see above: `pkg/x TestA` |") {
		t.Errorf("written %s", tab.markdown())
	}
	var out strings.Builder
	tab.print(&out, true)
	if !strings.Contains(out.String(), "part: a half") || !strings.Contains(tab.markdown(), "| A02 | two |  | part, see above: `pkg/x TestA` |") {
		t.Errorf("printed %s, written %s", out.String(), tab.markdown())
	}
	if got := strings.Join(tab.problems(), "\n"); !strings.Contains(got, "Z01, which is in no list") {
		t.Errorf("problems %s, want Z01", got)
	}
}

// A hole fails, and -write changes the table and nothing above it.
func TestRun(t *testing.T) {
	root := t.TempDir()
	name := filepath.Join(root, "docs", "parity.md")
	if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{document: sampleDoc}
	for _, c := range catalogues() {
		texts[c.document] = c.heading
	}
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(file)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	ok, err := run(root, true, false, &out)
	if err != nil || ok || !strings.Contains(out.String(), "items with neither test nor reason: A01 A04") {
		t.Errorf("%v, %v:\n%s", ok, err, out.String())
	}
	doc, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(sampleDoc, tableHeading)
	if !strings.HasPrefix(string(doc), before+tableHeading) || strings.Contains(string(doc), "stale line") || !strings.Contains(string(doc), "| A02 |") {
		t.Errorf("written:\n%.2000s", doc)
	}
}

// Each mutant of the tree can be planted, and its test claims its item.
func TestTheMutantsOfTheTree(t *testing.T) {
	found, _, err := items.Collect("../..")
	if err != nil {
		t.Fatal(err)
	}
	problems := staleMutants("../..", planted(), found[items.Parity])
	for _, problem := range append(problems, staleMutants("../..", plantedSidecars(), found[items.Sidecars])...) {
		t.Error(problem)
	}
}

// A mutant is reported if its text is gone or its test claims another item.
func TestAStaleMutantIsTold(t *testing.T) {
	claims := map[string][]items.Claim{"A01": {{Dir: "pkg/x", Test: "TestA"}}}
	m := mutant{Item: "A01", File: "main.go", Old: "package main", New: "", Dir: "pkg/x", Test: "TestA"}
	gone, other := m, m
	gone.Old, other.Test = "package "+"gone", "TestB"
	got := strings.Join(staleMutants(".", []mutant{m, gone, other}, claims), "\n")
	if want := `mutant of A01: main.go has "package gone" 0 times, want once` + "\n" +
		"mutant of A01: pkg/x TestB does not claim it"; got != want {
		t.Errorf("problems %s, want %s", got, want)
	}
}

// A test that is skipped, whole or in part, fails or did not run shows no item.
func TestWhatATestShows(t *testing.T) {
	results := map[string]string{"TestP": "pass", "TestF": "fail", "TestS": "pass", "TestS" + skipped: "TestS/a", "TestS/b": "pass"}
	for test, want := range map[string]string{
		"TestP": "pass", "TestF": "fail", "TestS": "skip of TestS/a", "TestS/b": "pass", "TestN": "not run",
	} {
		if got := outcome(results, test); got != want {
			t.Errorf("%s: %s, want %s", test, got, want)
		}
	}
	l := line{Item: items.Item{ID: "A01"}, tests: []string{"pkg/x TestP", "test/cluster TestC"}, part: "a half"}
	if got, why := l.verdict(map[string]string{"pkg/x TestP": "pass"}); !strings.HasPrefix(got, "part;") || why != nil {
		t.Errorf("%s, %q, want part", got, why)
	}
	if got, why := l.verdict(map[string]string{"pkg/x TestP": "skip"}); got != "FAIL" || len(why) != 1 {
		t.Errorf("%s, %q, want FAIL", got, why)
	}
}

// The document of the tree can be read, and has few enough reasons.
func TestTheDocumentOfTheTree(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("../..", document))
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := differences(string(doc))
	if err != nil {
		t.Fatal(err)
	}
	if len(reasons) > most {
		t.Errorf("%d items differ on purpose, at most %d may", len(reasons), most)
	}
	if _, err := replaceTable(string(doc), ""); err != nil {
		t.Error(err)
	}
}
