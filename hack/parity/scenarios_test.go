package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/hack/items"
)

// What others do has a test or a reason each, enough of it has a test, and the
// documents' tables name the tests that claim it, and no others.
func TestTheCataloguesOfTheTree(t *testing.T) {
	found, _, err := items.Collect("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range catalogues() {
		all, problems := c.scenarios(items.Catalog(c.kind), found[c.kind])
		for _, p := range problems {
			t.Error(p)
		}
		doc, err := os.ReadFile(filepath.Join("../..", c.document))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := c.replace(string(doc), all); err != nil || want != string(doc) {
			t.Errorf("%s: the table is not that of hack/items and of the tests (%v): run make parity-docs", c.document, err)
		}
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
	c := catalogues()[0]
	all, problems := c.scenarios(list, claims)
	got := strings.Join(problems, "\n")
	for _, want := range []string{
		"U-02 has no test that claims it", "U-03 is not ours, and pkg/x TestA claims it", `U-04: result "perhaps"`,
		"U-05: want what others do", "U-06: the result does not say why", "2 scenarios have a test, want at least 120",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("problems %s\nwant %s", got, want)
		}
	}
	if len(problems) != 6 {
		t.Errorf("problems %q", problems)
	}
	doc, err := c.replace("# Head\n"+c.heading+"stale", all)
	if err != nil || !strings.HasPrefix(doc, "# Head\n") || strings.Contains(doc, "stale") ||
		!strings.Contains(doc, "| U-01 | a.go: one | mounts it | `pkg/x TestA`, `pkg/x TestB` | same |") {
		t.Errorf("%s, %v", doc, err)
	}
	if _, err := c.replace("# Head\n", all); err == nil {
		t.Error("a document without the heading")
	}
}
