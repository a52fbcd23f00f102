package leftover

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// A tree answers as a comparison with every one of its paths does.
func TestTreeFindsWhatIsAboveAndBelow(t *testing.T) {
	var all []string
	for _, a := range []string{"/a", "/ab", "/b"} {
		all = append(all, a)
		for _, b := range []string{"/a", "/b"} {
			all = append(all, a+b, a+b+"/c")
		}
	}
	for set := range 1 << len(all) {
		var in []string
		for i, p := range all {
			if set&(1<<i) != 0 {
				in = append(in, p)
			}
		}
		tr := newTree(slices.Values(in))
		for _, p := range append(all, "/", "/c", "/a/a/c/d") {
			below, has := tr.below(p)
			if want := slices.ContainsFunc(in, func(q string) bool { return p == "/" || pathname.Within(q, p) }); has != want || has && !slices.Contains(in, below) {
				t.Fatalf("%v: below %s: %s, %v, want %v", in, p, below, has, want)
			}
			if got, want := tr.covers(p), slices.ContainsFunc(in, func(q string) bool { return pathname.Within(p, q) }); got != want {
				t.Fatalf("%v: covers %s: %v", in, p, got)
			}
		}
	}
}

// A search does not compare each directory with each record: with 64 times the records, the answers take about as long.
func TestASearchDoesNotCompareEachWithEach(t *testing.T) {
	lookups := func(records int) time.Duration {
		n := newNode(t)
		for i := range records {
			n.known.Paths[fmt.Sprintf("%s/pods/%d/volumes/kubernetes.io~csi/data/mount", n.root, i)] = true
		}
		w, err := n.scanner().walk(t.Context(), n.known)
		must(t, err)
		defer w.root.Close()
		best := time.Hour
		for range 5 {
			began := time.Now()
			for i := range 500 {
				if w.isKnown(fmt.Sprintf("%s/pods/%d", n.root, -1-i)) {
					t.Fatal("known")
				}
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	few, many := lookups(500), lookups(64*500)
	if many > 16*few {
		t.Errorf("500 answers take %v beside 500 records, and %v beside %d", few, many, 64*500)
	}
}
