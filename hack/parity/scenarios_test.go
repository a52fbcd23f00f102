package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// The scenarios of the tree have a test or a reason each, enough of them have a
// test, and the document's table names the tests that claim them, and no others.
func TestTheScenariosOfTheTree(t *testing.T) {
	found, _, err := items.Collect("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, problems := scenarios(items.Catalog(items.Scenarios), found[items.Scenarios])
	for _, p := range problems {
		t.Error(p)
	}
	doc, err := os.ReadFile(filepath.Join("../..", scenarioDocument))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := replaceScenarios(string(doc), all); err != nil || want != string(doc) {
		t.Errorf("%s: the table is not that of hack/items/scenarios.txt and of the tests (%v): run make parity-docs", scenarioDocument, err)
	}
}

func TestWhatIsWrongWithScenarios(t *testing.T) {
	list := []items.Item{
		{ID: "U-01", Title: "a.go: one\tmounts it\tsame"},
		{ID: "U-02", Title: "a.go: two\tmounts it\tdiffers: for a reason"},
		{ID: "U-03", Title: "a.go: three\tnothing\tnot ours: the controller's"},
		{ID: "U-04", Title: "a.go: four\tnothing\tperhaps"},
		{ID: "U-05", Title: "a.go: five"},
		{ID: "U-06", Title: "a.go: six\tnothing\tdiffers: "},
	}
	claims := map[string][]items.Claim{
		"U-01": {{Dir: "pkg/x", Test: "TestB"}, {Dir: "pkg/x", Test: "TestA"}, {Dir: "pkg/x", Test: "TestA"}},
		"U-03": {{Dir: "pkg/x", Test: "TestA"}},
	}
	all, problems := scenarios(list, claims)
	got := strings.Join(problems, "\n")
	for _, want := range []string{
		"U-02 has no test that claims it", "U-03 is not ours, and pkg/x TestA claims it", `U-04: result "perhaps"`,
		"U-05: want what Kubernetes tests", "U-06: the result does not say why", "2 scenarios have a test, want at least 120",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("problems %s\nwant %s", got, want)
		}
	}
	if len(problems) != 6 {
		t.Errorf("problems %q", problems)
	}
	doc, err := replaceScenarios("# Head\n"+scenarioHeading+"stale", all)
	if err != nil || !strings.HasPrefix(doc, "# Head\n") || strings.Contains(doc, "stale") ||
		!strings.Contains(doc, "| U-01 | a.go: one | mounts it | `pkg/x TestA`, `pkg/x TestB` | same |") {
		t.Errorf("%s, %v", doc, err)
	}
	if _, err := replaceScenarios("# Head\n", all); err == nil {
		t.Error("a document without the heading")
	}
}
