package oci

import (
	"strings"
	"testing"
)

// C48: a document of a few bytes an element stands for a descriptor of a hundred: what it
// decodes to is limited, whatever its elements are.
//
// Attacks: C48.
func TestAttackDocumentThatStandsForMemory(t *testing.T) {
	for _, element := range []string{"{}", "0", "null", `""`, "[]"} {
		var all index
		text := `{"manifests":[` + strings.TrimSuffix(strings.Repeat(element+",", 1<<20), ",") + `]}`
		if err := parse([]byte(text), &all); err == nil || len(all.Manifests) > maxCommas {
			t.Errorf("%s: decoded to %d descriptors, %v", element, len(all.Manifests), err)
		}
	}
	large := `{"manifests":[` + strings.TrimSuffix(strings.Repeat(`{"digest":"","size":1,"mediaType":""},`, 10_000), ",") + `]}`
	if err := parse([]byte(large), &index{}); err != nil {
		t.Error(err)
	}
}
