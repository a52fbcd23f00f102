package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sector is the number of bytes that a disk writes as a whole.
const sector = 512

// flips returns how many places of each kind are damaged; `make test-flips` has 10,000.
func flips() int {
	if os.Getenv("EXPLORE") == "full" {
		return 10_000
	}
	return 50
}

// held returns what a journal holds, by bucket and key, and the keys that are set apart.
func held(t *testing.T, b *Bolt) (all map[string]string, set map[string]bool) {
	t.Helper()
	all, set = map[string]string{}, map[string]bool{}
	loaded, err := b.Load(t.Context())
	must(t, err)
	for id, v := range loaded.Volumes {
		record, err := EncodeRecord(v)
		must(t, err)
		all["volumes/"+string(id)] = string(record)
	}
	for id := range loaded.Quarantined {
		set["volumes/"+string(id)] = true
	}
	all["boot"] = loaded.BootID
	for _, bucket := range []string{"claims", "objects", "operator"} {
		values, err := b.LoadBucket(t.Context(), bucket)
		must(t, err)
		for key, value := range values.Sound {
			all[bucket+"/"+key] = string(value)
		}
		for key := range values.Unreadable {
			set[bucket+"/"+key] = true
		}
	}
	return all, set
}

// No flipped bit, byte or sector in the file makes a start fail, and none loses, adds or
// reverts a value in silence: each value is as it was written, or set apart, or the journal
// says that it uses its spare copy. Damaged content never replaces the spare copy.
//
// Faults: A184.
func TestAFlipInTheFileLosesNothingInSilence(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	b := openBolt(t, path)
	for i := range 60 {
		v := sample(sampleID(i))
		commit(t, b, map[state.VolumeID]*state.Volume{v.ID: &v})
		for _, bucket := range []string{"claims", "objects"} {
			must(t, b.CommitBucket(t.Context(), bucket, map[string][]byte{fmt.Sprintf("default/%d", i): bytes.Repeat([]byte{byte(i)}, 50*i)}))
		}
	}
	must(t, b.SetBootID(t.Context(), "boot"))
	must(t, b.CommitBucket(t.Context(), "operator", map[string][]byte{"drain": []byte("{}")}))
	must(t, b.Spare(t.Context()))
	for i := range 20 { // so that older pages are left in the file
		commit(t, b, map[state.VolumeID]*state.Volume{sampleID(i): nil})
		must(t, b.CommitBucket(t.Context(), "claims", map[string][]byte{fmt.Sprintf("default/%d", i): nil}))
	}
	want, _ := held(t, b)
	must(t, b.Close())
	whole, spare := read(t, path), read(t, path+spareSuffix)
	for kind, damage := range map[string]func(*rand.Rand, []byte){
		"bit":  func(r *rand.Rand, b []byte) { b[r.IntN(len(b))] ^= 1 << r.IntN(8) },
		"byte": func(r *rand.Rand, b []byte) { b[r.IntN(len(b))] ^= byte(1 + r.IntN(255)) },
		"sector": func(r *rand.Rand, b []byte) {
			s := b[r.IntN(len(b)/512)*512:][:512]
			s[r.IntN(512)] ^= 1
			clear(s[:256])
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "state.db")
			spares := 0
			for seed := range flips() {
				broken := bytes.Clone(whole)
				damage(rand.New(rand.NewPCG(uint64(seed), 1)), broken)
				write(t, path, broken)
				write(t, path+spareSuffix, spare)
				b, err := OpenBolt(path)
				if err != nil {
					t.Fatalf("seed %d: the start fails: %v", seed, err)
				}
				have, apart := held(t, b)
				if b.Recovery().Why != "" {
					spares++
				} else if why := missing(want, have, apart); why != "" {
					t.Fatalf("seed %d: %s", seed, why)
				}
				must(t, b.Close())
				for key := range apart {
					if c, err := readSpare(path + spareSuffix); err != nil || !hasSound(c, key) || !errors.Is(b.SpareErr(), ErrUnreadable) {
						t.Fatalf("seed %d: the spare copy lost the sound value of %s: %v, %v", seed, key, err, b.SpareErr())
					}
				}
				must(t, os.RemoveAll(path+damagedSuffix))
			}
			t.Logf("%d of %d went by the spare copy", spares, flips())
		})
	}
}

// hasSound reports whether a spare copy has a sound value of a key as held returns it.
func hasSound(c content, key string) bool {
	bucket, rest, _ := strings.Cut(key, "/")
	for _, at := range []entryKey{{bucket, rest}, {kvPrefix + bucket, rest}, {volumesBucket, key}} {
		if _, ok := c.sound(at); ok {
			return true
		}
	}
	return false
}

// missing names a value that is neither as it was written nor set apart.
func missing(want, have map[string]string, apart map[string]bool) string {
	for key, value := range want {
		if have[key] != value && !apart[key] {
			return fmt.Sprintf("%s is %.60q, want %.60q", key, have[key], value)
		}
	}
	for key := range have {
		if _, there := want[key]; !there && !apart[key] {
			return key + " was not written"
		}
	}
	return ""
}

// If an older version that does not know sums wrote last, its journal is read as it is, and
// has sums from then on.
func TestAJournalOfAVersionWithoutSumsIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	v := sample("v")
	commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
	must(t, b.Close())
	c, err := readFile(path)
	must(t, err)
	for name, meta := range map[string]map[string][]byte{"none": {}, "earlier": {sumsKey: seal([]byte(`{"tx":1,"buckets":{}}`))}} {
		old := maps.Clone(c)
		old[metaBucket] = map[string][]byte{formatKey: []byte("1")}
		must(t, rebuild(path, old.sums(), old.entries))
		plantRaw(t, path, meta)
		b = openBolt(t, path)
		if got, err := b.Load(t.Context()); err != nil || b.Recovery().Why != "" || len(got.Volumes) != 1 {
			t.Errorf("%s: %v, recovered %q, %d volumes", name, err, b.Recovery().Why, len(got.Volumes))
		}
		must(t, b.Close())
		if c, err := readFile(path); err != nil || c[metaBucket][sumsKey] == nil {
			t.Errorf("%s: no sums afterwards: %v", name, err)
		}
	}
}

// Where an old page stands in place of a new one, each older value is sound by itself: only
// the sums show it.
func TestOldValuesAreNoneOfTheJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	must(t, b.CommitBucket(t.Context(), "claims", map[string][]byte{"k": []byte("old"), "l": []byte("x")}))
	must(t, b.Close())
	c, err := readFile(path)
	must(t, err)
	old := content{metaBucket: c[metaBucket], kvPrefix + "claims": {"k": seal([]byte("older")), "l": seal([]byte("x"))}}
	stored := sumsOf(t, c)
	sound := func() bool { return false }
	if err := stored.compare(old.sums(), sound); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "values that were written") {
		t.Errorf("another value: %v", err)
	}
	delete(old[kvPrefix+"claims"], "l")
	if err := stored.compare(old.sums(), sound); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "keys that were written") {
		t.Errorf("a key less: %v", err)
	}
}

// If one of the file's two heads is damaged, the other may be older than the last write, so
// the daemon doubts what the journal says.
func TestADamagedHeadIsToldOf(t *testing.T) {
	for page := range 2 {
		path := filepath.Join(t.TempDir(), "state.db")
		b := openBolt(t, path)
		v := sample("v")
		commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
		must(t, b.Close())
		data := read(t, path)
		data[page*os.Getpagesize()+headAt+40] ^= 1
		write(t, path, data)
		b = openBolt(t, path)
		got, err := b.Load(t.Context())
		must(t, err)
		if !strings.Contains(b.Recovery().Why, "heads") || len(got.Volumes) == 1 && got.Volumes["v"].Stage.Phase == state.Present {
			t.Errorf("page %d: recovered %q: %+v", page, b.Recovery().Why, got.Volumes["v"].Stage)
		}
		if string(read(t, path+damagedSuffix)) != string(data) {
			t.Errorf("page %d: the file as it was is not kept", page)
		}
	}
}

// A node that boots a kernel with other pages (arm64 has 4, 16 and 64 KiB) reads its journal as it was.
func TestAJournalOfAKernelWithOtherPages(t *testing.T) {
	dir := t.TempDir()
	b := openBolt(t, filepath.Join(dir, "made.db"))
	v := sample("v")
	commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
	must(t, b.Close())
	c, err := readFile(filepath.Join(dir, "made.db"))
	must(t, err)
	for _, size := range []int{4 << 10, 16 << 10, 64 << 10} {
		path := filepath.Join(dir, fmt.Sprint(size))
		db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: size})
		must(t, err)
		must(t, db.Update(func(tx *bolt.Tx) error { return putAll(tx, c.sums(), c.entries) }))
		must(t, db.Close())
		b := openBolt(t, path)
		got, err := b.Load(t.Context())
		must(t, err)
		if b.Recovery().Lost() || got.Volumes["v"].Stage.Phase != v.Stage.Phase {
			t.Errorf("pages of %d bytes: recovered %q: %+v", size, b.Recovery().Why, got.Volumes["v"].Stage)
		}
	}
}

// An empty file with a damaged head does not make a start fail.
func TestADamagedHeadOfAnEmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Close())
	data := read(t, path)
	data[headAt+40] ^= 1
	write(t, path, data)
	if b := openBolt(t, path); !strings.Contains(b.Recovery().Why, "heads") {
		t.Errorf("recovery: %v", b.Recovery())
	}
}

// A journal is copied only if it has the keys that were written: otherwise the older copy stays.
//
// Faults: A184.
func TestASpareCopyIsNotReplacedByWhatIsDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		change   func([]byte) []byte
		damaged  error
		keysGone bool
	}{
		"the order of keys": {func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("key-2"), []byte("key-0")) }, ErrDamaged, true},
		"a key":             {func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("key-2"), []byte("key-3")) }, ErrDamaged, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			b := openBolt(t, path)
			must(t, b.CommitBucket(t.Context(), "claims", map[string][]byte{"key-1": []byte("the value"), "key-2": []byte("another")}))
			must(t, b.Close())
			b = openBolt(t, path)
			spare := read(t, path+spareSuffix)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt(c.change(read(t, path)), 0)
			must(t, errors.Join(err, f.Close()))
			if err := b.Spare(t.Context()); !errors.Is(err, c.damaged) {
				t.Errorf("Spare: %v, want %v", err, c.damaged)
			}
			if err := b.Close(); c.keysGone != (err != nil) {
				t.Errorf("Close: %v", err)
			}
			if !bytes.Equal(read(t, path+spareSuffix), spare) {
				t.Error("the spare copy was replaced")
			}
		})
	}
}

func sumsOf(t *testing.T, c content) (s sums) {
	t.Helper()
	b, err := unseal(c[metaBucket][sumsKey])
	must(t, err)
	must(t, json.Unmarshal(b, &s))
	return s
}

// plantRaw puts values into the file's own bucket as a version without sums would.
func plantRaw(t *testing.T, path string, meta map[string][]byte) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(metaBucket))
		if err := b.Delete([]byte(sumsKey)); err != nil {
			return err
		}
		for key, value := range meta {
			if err := b.Put([]byte(key), value); err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, db.Close())
}
