package resolve

import "strings"

// The names that every object has are checked by hand: each object of a burst, and
// of a start, is checked several times, and a regular expression takes several times as long.

// isLabel reports whether s is a label of DNS as Kubernetes has them.
func isLabel(s string) bool { return len(s) <= 63 && isWord(s, lower, "-") }

// isSubdomain reports whether s is a subdomain of DNS as Kubernetes has them: its
// parts may be longer than labels are.
func isSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !isWord(part, lower, "-") {
			return false
		}
	}
	return true
}

// isWord reports whether s is of characters for which is is true, and between the
// first and the last also of others.
func isWord(s string, is func(byte) bool, others string) bool {
	if s == "" || !is(s[0]) || !is(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !is(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return false
		}
	}
	return true
}

func lower(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func letter(c byte) bool { return lower(c) || 'A' <= c && c <= 'Z' }
