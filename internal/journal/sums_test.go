package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// The sums of every journal on disk have this form.
func TestSumsAreThoseOfJournalsThatAreThere(t *testing.T) {
	var s sums
	for _, c := range []struct{ bucket, key, value string }{
		{"", "", ""}, {"volumes", "d^v", "a record"}, {"volumes", "d^v", "one that is longer"}, {"kv:claims", "12 3", "x"},
	} {
		h := sha256.Sum256(fmt.Appendf(nil, "%d %d %s%s%s", len(c.bucket), len(c.key), c.bucket, c.key, c.value))
		if got, want := s.hashOf(c.bucket, []byte(c.key), []byte(c.value)), binary.BigEndian.Uint64(h[:]); got != want {
			t.Errorf("%+v: %x, want %x", c, got, want)
		}
	}
}

// The sum after a series of changes equals the sum of the resulting content.
func TestSumsFollowChanges(t *testing.T) {
	s := sums{Buckets: map[string]sum{}}
	k, l, a, b := []byte("k"), []byte("l"), []byte("a"), []byte("b")
	s.replace("x", k, nil, a)
	s.replace("x", l, nil, b)
	s.replace("y", k, nil, a)
	s.replace("x", k, a, b)
	s.replace("x", l, b, nil)
	s.replace("y", k, a, nil)
	s.replace("y", []byte("m"), nil, nil)
	want := content{"x": {"k": b}}.sums()
	if len(s.Buckets) != 1 || s.Buckets["x"] != want.Buckets["x"] {
		t.Errorf("%v, want %v", s.Buckets, want.Buckets)
	}
}

// The pages that a start writes are little more than what they hold. A spare copy consists of
// these pages.
func TestARebuiltFileHasFullPages(t *testing.T) {
	c := content{metaBucket: {formatKey: []byte("1")}, volumesBucket: {}}
	value, holds := make([]byte, 700), 0
	for i := range 1000 {
		key := fmt.Sprintf("d^%04d", i)
		c[volumesBucket][key] = value
		holds += len(key) + len(value)
	}
	path := filepath.Join(t.TempDir(), "state.db")
	must(t, rebuild(path, c.sums(), c.entries))
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	defer db.Close()
	must(t, db.View(func(tx *bolt.Tx) error {
		if tx.Size() > int64(holds)*3/2 {
			t.Errorf("pages of %d bytes hold %d", tx.Size(), holds)
		}
		return nil
	}))
}
