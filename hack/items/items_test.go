package items

import (
	"slices"
	"strings"
	"testing"
)

// Every claim in the tree names an item that exists, and belongs to a test.
func TestClaimsOfTheTree(t *testing.T) {
	found, problems, err := Collect("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	for _, k := range Kinds {
		t.Logf("%s: %d of %d are claimed", k, len(found[k]), len(Catalog(k)))
	}
}

// The lists begin with all entries of the acceptance list.
func TestCatalogs(t *testing.T) {
	for kind, want := range map[Kind]struct {
		count       int
		first, last string
	}{
		Parity:  {268 + 105, "A01", "N-105"},
		Faults:  {130, "A001", "A130"},
		Attacks: {26, "C1", "C26"},
	} {
		list := Catalog(kind)
		if len(list) < want.count || list[0].ID != want.first || list[want.count-1].ID != want.last {
			t.Errorf("%s: %d items that begin with %s, want %d from %s to %s", kind, len(list), list[0].ID, want.count, want.first, want.last)
		}
	}
	for _, i := range Catalog(Parity) {
		if i.Whole == "" {
			t.Errorf("%s has a title and not all that it asks", i.ID)
		}
	}
	if got := (Item{ID: "N01"}).Area() + (Item{ID: "N-01"}).Area(); got != "NN-" {
		t.Errorf("areas %s", got)
	}
}

// Each entry that audits added to the acceptance list has a test. Their numbers may have gaps.
func TestWhatAuditsAddedIsTested(t *testing.T) {
	found, _, err := Collect("../..")
	if err != nil {
		t.Fatal(err)
	}
	for kind, accepted := range map[Kind]int{Faults: 130, Attacks: 26} {
		for _, item := range Catalog(kind)[accepted:] {
			if len(found[kind][item.ID]) == 0 {
				t.Errorf("%s (%s) has no test that claims it", item.ID, item.Title)
			}
		}
	}
}

func TestListsThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"A01 no tab":       "line 1",
		"A01\tx\n\nA01\ty": "line 3: A01 a second time",
		"\tno id":          "line 1",
		"A01\t":            "line 1",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

const sample = `package p

import "testing"

// Words.
// ITEMS: A01, N-02.
func TestDoc(t *testing.T) {
	for range []int{
		// FAULTS: A001.
		1,
	} {
	}
}

// FAULTS: A002.

func TestApart(t *testing.T) {}

// ITEMS: A03.
func notATest() {}

// ITEMS: A04
func TestNoPoint(t *testing.T) {}

// ATTACKS: C1.
func FuzzIt(f *testing.F) {}
`

func TestWhatIsAClaim(t *testing.T) {
	// The words are changed here, so that this file makes no claim.
	src := strings.NewReplacer("ITEMS", "Items", "FAULTS", "Faults", "ATTACKS", "Attacks").Replace(sample)
	claims, problems, err := inFile("d/x_test.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range claims {
		got = append(got, string(c.Kind)+" "+c.ID+" "+c.Test+" "+c.At)
	}
	want := []string{
		"Items A01 TestDoc d/x_test.go:6", "Items N-02 TestDoc d/x_test.go:6",
		"Faults A001 TestDoc d/x_test.go:9", "Attacks C1 FuzzIt d/x_test.go:25",
	}
	if !slices.Equal(got, want) {
		t.Errorf("claims %q, want %q", got, want)
	}
	if len(problems) != 3 || !strings.HasPrefix(problems[0], "d/x_test.go:15: a claim outside") ||
		!strings.HasPrefix(problems[1], "d/x_test.go:19: a claim outside") || !strings.HasPrefix(problems[2], "d/x_test.go:22: \"// Items: A04\"; write it") {
		t.Errorf("problems %q", problems)
	}
}

func TestAPageOfScenariosClaims(t *testing.T) {
	src := strings.NewReplacer("ITEMS", "Items", "FAULTS", "Faults").Replace("What it shows.\nITEMS: A01, A02.\nFAULTS: A001\n-- one --\nITEMS: A03.\n")
	claims, problems, err := inPage("d/testdata/a-page.txtar", []byte(src))
	if err != nil || len(claims) != 2 || claims[1].ID != "A02" || claims[1].Test != "TestScenario/a-page" || claims[1].Dir != "d" || claims[1].At != "d/testdata/a-page.txtar:2" {
		t.Errorf("claims %+v, %v", claims, err)
	}
	if len(problems) != 1 || !strings.HasPrefix(problems[0], "d/testdata/a-page.txtar:3: ") {
		t.Errorf("problems %q", problems)
	}
}
