package manifest

import (
	"strings"
	"testing"
)

// TestWorkIsBounded: an alias may stand for much, and two bytes for a struct.
func TestWorkIsBounded(t *testing.T) {
	many := func(one string) string { return strings.Repeat(one+", ", 100) + one }
	for name, text := range map[string]string{
		"aliases": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  volumes:\n" +
			"  - &v {name: a, projected: {sources: [&s {configMap: {items: [&i {key: k, path: p}, " + many("*i") + "]}}, " + many("*s") + "]}}\n" +
			strings.Repeat("  - *v\n", 100),
		"nothing": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [" + strings.Repeat("~,", 5000) + "]}\n",
	} {
		_, err := decode("x.yaml", []byte(text), 20000)
		if err == nil || !strings.Contains(err.Error(), "too much; want less in one file") || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
