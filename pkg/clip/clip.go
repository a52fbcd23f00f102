// Package clip bounds the texts that others wrote: drivers, plugins, operators and
// manifests. It knows nothing of who wrote one, or of where it is shown. Every room
// that repeats such a text may call it, from any goroutine.
package clip

import "strings"

// Text returns s as valid UTF-8, cut to at most limit bytes at the end of a character;
// mark is added where something was cut off. Each run of bytes that are of no character
// becomes one "?".
func Text(s string, limit int, mark string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + mark
}
