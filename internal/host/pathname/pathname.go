// Package pathname compares paths by their text: whether one lies at or below another.
// It asks no file system, so it knows nothing about links; descriptors show where a
// path leads (rule 8). Every room may call it, from any goroutine.
package pathname

import (
	"fmt"
	"path"
	"strings"
)

// Within reports whether a clean path is dir or lies below it. Both are absolute, or
// both are relative to the same directory.
func Within(p, dir string) bool {
	rest, ok := strings.CutPrefix(p, dir)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(dir, "/"))
}

// Below returns the absolute path p relative to the directory root. It fails if p is
// root itself or lies outside it, also by "..".
func Below(p, root string) (string, error) {
	if !path.IsAbs(p) {
		return "", fmt.Errorf("path %q: not absolute, and so not below %s", p, root)
	}
	rel, ok := strings.CutPrefix(path.Clean(p), strings.TrimSuffix(path.Clean(root), "/")+"/")
	if !ok || rel == "" {
		return "", fmt.Errorf("path %q: not below %s", p, root)
	}
	return rel, nil
}
