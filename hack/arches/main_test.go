package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A number that is too large for an int of 32 bits is found, in a package and in a test.
func TestANumberOf64BitsIsFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module planted\n\ngo 1.26\n",
		"a.go":      "package planted\n\nvar A int = 1 << 40\n",
		"a_test.go": "package planted_test\n\nvar b int = 1 << 41\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for arch, want := range map[string]int{"amd64": 0, "s390x": 0, "arm": 2} {
		problems, err := check(dir, arch, []string{"."})
		if err != nil || len(problems) < want || want == 0 && len(problems) > 0 {
			t.Errorf("%s: %v, %v", arch, problems, err)
		}
		for _, constant := range []string{"1 << 40", "1 << 41"} {
			if want > 0 && !strings.Contains(fmt.Sprint(problems), constant) {
				t.Errorf("%s: no problem with %s: %v", arch, constant, problems)
			}
		}
	}
}
