package content_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

func TestCleanShortens(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "./a": "a", "a//b": "a/b", "a/": "a", "a/./b": "a/b", "..": "", "a/../b": "", "...": ""} {
		if got, err := content.Clean(in); got != want || (err == nil) != (want != "") {
			t.Errorf("Clean(%q): got %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestPathsThatCannotBeTogetherAreRefused(t *testing.T) {
	for _, paths := range [][]string{{"a", "a/b"}, {"a/b/c", "a"}, {"./a"}, {"a", ""}, {"..data"}, {strings.Repeat("x", 256)}} {
		if err := content.CheckPaths(paths); !errors.Is(err, content.ErrPath) {
			t.Errorf("%.40q: got %v, want ErrPath", paths, err)
		}
	}
	if err := content.CheckPaths([]string{"a", "ab", "b/a", "b/c/d"}); err != nil {
		t.Error(err)
	}
}

func FuzzClean(f *testing.F) {
	for _, p := range []string{"a", "a/b", "../x", "a/../../x", "/abs", "..data", "a\x00b", "./a", "a//b/"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		c, err := content.Clean(p)
		if err != nil {
			if !errors.Is(err, content.ErrPath) {
				t.Fatalf("Clean(%q): got %v, want ErrPath", p, err)
			}
			return
		}
		if !filepath.IsLocal(c) || filepath.Clean(c) != c || strings.HasPrefix(c, "..") || strings.Contains(c, "\x00") {
			t.Fatalf("Clean(%q): got %q, which is no path within a volume", p, c)
		}
	})
}
