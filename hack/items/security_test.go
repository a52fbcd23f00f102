package items

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each paragraph of docs/security.md names the tests of its statements, and they exist.
func TestSecurityPageNamesItsTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(page)), "\n\n") {
		if !strings.HasPrefix(paragraph, "**") {
			continue
		}
		_, comment, named := strings.Cut(paragraph, "\n<!-- tests: ")
		comment, _, closed := strings.Cut(comment, " -->")
		if !named || !closed {
			t.Errorf("no tests are named of %.60q", paragraph)
			continue
		}
		for room := range strings.SplitSeq(comment, "; ") {
			words := strings.Fields(room)
			if len(words) < 2 {
				t.Errorf("%q: found %q, want a directory and its tests", paragraph[:60], room)
				continue
			}
			files, err := filepath.Glob("../../" + words[0] + "/*_test.go")
			if err != nil {
				t.Fatal(err)
			}
			all := ""
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				all += string(text)
			}
			for _, name := range words[1:] {
				if !strings.Contains(all, "\nfunc "+name+"(") {
					t.Errorf("%s has no %s, which the page names of %.60q", words[0], name, paragraph)
				}
			}
		}
	}
}
