package journal

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

func stores() map[string]func(dir string) (Store, error) {
	return map[string]func(dir string) (Store, error){"bbolt": OpenBolt, "pebble": OpenPebble, "log": OpenWAL}
}

func open(t testing.TB, how func(string) (Store, error), dir string) Store {
	t.Helper()
	s, err := how(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every value survives Close and Open, over many compactions of the log.
func TestStoresKeepWhatWasWritten(t *testing.T) {
	for name, how := range stores() {
		t.Run(name, func(t *testing.T) {
			dir, want := t.TempDir(), map[string][]byte{}
			random := rand.New(rand.NewPCG(1, 2))
			s := open(t, how, dir)
			for i := range 200 {
				changes := map[string][]byte{}
				for range 1 + random.IntN(64) {
					key := fmt.Sprintf("volume-%d", random.IntN(300))
					changes[key] = []byte(fmt.Sprintf("%d %0*d", i, 1+random.IntN(2000), 7))
					if random.IntN(4) == 0 {
						changes[key] = nil
					}
				}
				if err := s.Write(changes); err != nil {
					t.Fatal(err)
				}
				for key, value := range changes {
					if want[key] = value; value == nil {
						delete(want, key)
					}
				}
				if i%20 == 0 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, how, dir)
				}
				same(t, s, want)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func same(t *testing.T, s Store, want map[string][]byte) {
	t.Helper()
	got, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	equal := func(a, b []byte) bool { return string(a) == string(b) }
	if !maps.EqualFunc(got, want, equal) {
		t.Fatalf("%d values are kept, %d were written, or they differ", len(got), len(want))
	}
}

// A log that is truncated anywhere in its last frame has all earlier frames; a wrong byte
// before the last frame is damage and not the end.
func TestLogKnowsTornFromDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, OpenWAL, dir)
	ends := []int64{}
	for i := range 3 {
		if err := s.Write(map[string][]byte{fmt.Sprint("k", i): []byte("a value")}); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, s.(*wal).end)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "journal.log"))
	if err != nil {
		t.Fatal(err)
	}
	reopen := func(at int64, change func([]byte)) (map[string][]byte, error) {
		dir := t.TempDir()
		data := append([]byte(nil), whole...)
		change(data[at:])
		if err := os.WriteFile(filepath.Join(dir, "journal.log"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenWAL(dir)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		return s.Load()
	}
	for at := ends[1]; at < ends[2]; at++ {
		got, err := reopen(at, func(b []byte) { clear(b) })
		if err != nil || len(got) < 2 {
			t.Fatalf("cut at %d: %d values, %v; want those of the frames before", at, len(got), err)
		}
	}
	for at := ends[0]; at < ends[1]; at++ {
		if _, err := reopen(at, func(b []byte) { b[0] ^= 0xff }); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d is wrong and frames follow: got %v, want ErrDamaged", at, err)
		}
	}
}

// BenchmarkWrite measures one durable write of n records of 1 kB among 4,000. Set
// JOURNAL_DIR to a directory on the disk to measure: the default, TMPDIR, may be a tmpfs,
// on which a durable write costs only its CPU.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{1, 64, 1000} {
		for name, how := range stores() {
			b.Run(fmt.Sprintf("records=%d/store=%s", n, name), func(b *testing.B) {
				dir, err := os.MkdirTemp(os.Getenv("JOURNAL_DIR"), "journal-bench-")
				if err != nil {
					b.Fatal(err)
				}
				defer os.RemoveAll(dir)
				s := open(b, how, dir)
				defer s.Close()
				value := make([]byte, 1000)
				all := map[string][]byte{}
				for i := range 4000 {
					all[fmt.Sprintf("driver/volume-%032d", i)] = value
				}
				if err := s.Write(all); err != nil {
					b.Fatal(err)
				}
				next := 0
				for b.Loop() {
					changes := map[string][]byte{}
					for range n {
						changes[fmt.Sprintf("driver/volume-%032d", next%4000)] = value
						next += 7
					}
					if err := s.Write(changes); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkOpen measures a start with 4,000 records.
func BenchmarkOpen(b *testing.B) {
	for name, how := range stores() {
		b.Run("store="+name, func(b *testing.B) {
			dir := b.TempDir()
			all := map[string][]byte{}
			for i := range 4000 {
				all[fmt.Sprintf("driver/volume-%032d", i)] = make([]byte, 1000)
			}
			s := open(b, how, dir)
			if err := s.Write(all); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				s = open(b, how, dir)
				if _, err := s.Load(); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
