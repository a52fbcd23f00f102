package clip

import "testing"

func TestTextIsBoundedAndValid(t *testing.T) {
	for _, tc := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc..."},
		{"aé", 3, "aé"},
		{"abé", 3, "ab..."}, // é has two bytes, and the second exceeds the limit
		{"éé", 3, "é..."},
		{"a\xffb", 3, "a?b"},
		{"a\xff\xfe\xfdb", 3, "a?b"}, // one mark for a run, so the text may fit after all
		{"abc\xc3", 3, "abc..."},
	} {
		if got := Text(tc.text, tc.limit, "..."); got != tc.want {
			t.Errorf("%q of at most %d bytes: %q, want %q", tc.text, tc.limit, got, tc.want)
		}
	}
}
