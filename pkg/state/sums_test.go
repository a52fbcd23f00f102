package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
)

// The sums of every journal on disk have this form.
func TestSumsAreThoseOfJournalsThatAreThere(t *testing.T) {
	var s sums
	for _, c := range []struct{ bucket, key, value string }{
		{"", "", ""}, {"volumes", "d^v", "a record"}, {"volumes", "d^v", "one that is longer"}, {"kv:claims", "12 3", "x"},
	} {
		h := sha256.Sum256(fmt.Appendf(nil, "%d %d %s%s%s", len(c.bucket), len(c.key), c.bucket, c.key, c.value))
		if got, want := s.hashOf(c.bucket, c.key, []byte(c.value)), binary.BigEndian.Uint64(h[:]); got != want {
			t.Errorf("%+v: %x, want %x", c, got, want)
		}
	}
}

// The sum after a series of changes equals the sum of the resulting content.
func TestSumsFollowChanges(t *testing.T) {
	s := sums{Buckets: map[string]sum{}}
	a, b := []byte("a"), []byte("b")
	s.replace("x", "k", nil, a)
	s.replace("x", "l", nil, b)
	s.replace("y", "k", nil, a)
	s.replace("x", "k", a, b)
	s.replace("x", "l", b, nil)
	s.replace("y", "k", a, nil)
	s.replace("y", "m", nil, nil)
	want := content{"x": {"k": b}}.sums()
	if len(s.Buckets) != 1 || s.Buckets["x"] != want.Buckets["x"] {
		t.Errorf("%v, want %v", s.Buckets, want.Buckets)
	}
}
