package leftover

import (
	"iter"
	"path"
)

// tree is a set of paths, all absolute or all relative to one directory. To find those above
// or below another path takes time in proportion to that path's depth, not to their number.
type tree map[string]place

// place is a path of a tree, or one above.
type place struct {
	in    bool   // the path itself is in the set
	below string // a path of the set at or below it
}

func newTree(paths iter.Seq[string]) tree {
	t := tree{}
	for p := range paths {
		for at := range upwards(p) {
			if _, ok := t[at]; ok && at != p {
				break // what is above it is there too
			}
			t[at] = place{in: at == p || t[at].in, below: p}
		}
	}
	return t
}

// below returns a path of the set at or below p, if there is one.
func (t tree) below(p string) (string, bool) {
	n, ok := t[p]
	return n.below, ok
}

// covers reports whether p is at or below a path of the set.
func (t tree) covers(p string) bool {
	for at := range upwards(p) {
		if t[at].in {
			return true
		}
	}
	return false
}

// upwards yields p and every path above it.
func upwards(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(p) {
			up := path.Dir(p)
			if up == p {
				return
			}
			p = up
		}
	}
}
