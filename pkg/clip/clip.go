// Package clip bounds the texts that others wrote: drivers, plugins, operators and
// manifests. It knows nothing of who wrote one, or of where it is shown. Every room
// that repeats such a text may call it, from any goroutine.
package clip

import "strings"

// Text returns s as valid UTF-8 of at most limit bytes, which end at the end of a
// character; mark follows where something was cut off. A byte that is of no
// character becomes "?".
func Text(s string, limit int, mark string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + mark
}
