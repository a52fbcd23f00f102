// Package clip shortens texts from outside: from drivers, plugins, operators and
// manifests. It does not know where a text comes from or where it is shown. Every room
// that repeats such a text may call it, from any goroutine.
package clip

import "strings"

// Text returns s as valid UTF-8, cut to at most limit bytes at a character boundary;
// mark is appended if something was cut off. Each run of invalid bytes becomes one "?".
func Text(s string, limit int, mark string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + mark
}
