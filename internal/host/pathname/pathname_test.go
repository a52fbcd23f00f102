package pathname

import "testing"

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		path, dir string
		want      bool
	}{
		{"/a", "/a", true},
		{"/a/b", "/a", true},
		{"/ab", "/a", false},
		{"/a", "/a/b", false},
		{"/", "/", true},
		{"/a", "/", true},
		{"/", "/a", false},
		{"/a/b", "/a/", true}, // an operator may write a directory like this
		{"pods/a", "pods", true},
		{"pods2", "pods", false},
		{"/pods", "pods", false},
		{"pods", "/", false},
	} {
		if got := Within(tc.path, tc.dir); got != tc.want {
			t.Errorf("%q within %q: %v, want %v", tc.path, tc.dir, got, tc.want)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, tc := range []struct{ path, root, want string }{
		{"/r/a", "/r", "a"},
		{"/r/a/b/", "/r/", "a/b"},
		{"/r/a/../b", "/r", "b"},
		{"/a", "/", "a"},
		{"/r", "/r", ""},
		{"/", "/", ""},
		{"/r2/a", "/r", ""},
		{"/r/../a", "/r", ""},
		{"/r/a/../../b", "/r", ""},
		{"r/a", "/r", ""},
		{"r/a", "r", ""},
		{"../r/a", "/r", ""},
		{"", "/r", ""},
	} {
		got, err := Below(tc.path, tc.root)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q below %q: %q, %v; want %q", tc.path, tc.root, got, err, tc.want)
		}
	}
}
