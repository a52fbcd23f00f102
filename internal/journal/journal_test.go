package journal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// journal is what both implementations provide.
type journal interface {
	Load(ctx context.Context) (state.Loaded, error)
	Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error
	SetBootID(ctx context.Context, id string) error
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
	Close() error
}

func TestJournals(t *testing.T) {
	t.Run("Memory", func(t *testing.T) {
		suite(t, func(t *testing.T) (journal, func(change)) {
			m := NewMemory()
			return m, func(c change) {
				if err := m.apply(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
	t.Run("Bolt", func(t *testing.T) {
		suite(t, func(t *testing.T) (journal, func(change)) {
			b := openBolt(t, filepath.Join(t.TempDir(), "state.db"))
			return b, func(c change) {
				if err := b.commit(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

func openBolt(t testing.TB, path string) *Bolt {
	t.Helper()
	b, err := OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// suite tests what every journal must do. open also returns a function that stores raw bytes in it.
func suite(t *testing.T, open func(t *testing.T) (journal, func(change))) {
	for name, test := range map[string]func(*testing.T, journal, func(change)){
		"a new journal is empty":                       suiteEmpty,
		"what was committed is loaded":                 suiteCommit,
		"all changes or none":                          suiteAllOrNone,
		"the caller's values are not shared":           suiteNotShared,
		"an unreadable record is kept and quarantined": suiteQuarantine,
		"buckets are apart from each other":            suiteBuckets,
		"a damaged value names its key":                suiteDamagedValue,
		"a context that ended stops a call":            suiteContext,
		"a closed journal refuses":                     suiteClosed,
	} {
		t.Run(name, func(t *testing.T) {
			j, plant := open(t)
			test(t, j, plant)
		})
	}
}

func suiteEmpty(t *testing.T, j journal, _ func(change)) {
	got, err := j.Load(t.Context())
	if err != nil || len(got.Volumes)+len(got.Quarantined) > 0 || got.BootID != "" {
		t.Errorf("records: %+v, %v", got, err)
	}
	kv, err := j.LoadBucket(t.Context(), "objects")
	if err != nil || kv.Sound == nil || len(kv.Sound)+len(kv.Unreadable) > 0 {
		t.Errorf("bucket: %v, %v; want an empty one", kv, err)
	}
}

func suiteCommit(t *testing.T, j journal, _ func(change)) {
	a, b := sample("a"), sample("b")
	commit(t, j, map[state.VolumeID]*state.Volume{"a": &a, "b": &b, "never": nil})
	if err := j.SetBootID(t.Context(), "boot-7"); err != nil {
		t.Fatal(err)
	}
	b.SizeBytes = 7
	commit(t, j, map[state.VolumeID]*state.Volume{"a": nil, "b": &b})
	commit(t, j, nil)
	got, err := j.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := state.Loaded{Volumes: map[state.VolumeID]state.Volume{"b": b}, BootID: "boot-7"}
	if d := diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func suiteAllOrNone(t *testing.T, j journal, _ func(change)) {
	good, bad := sample("good"), sample("bad")
	bad.Spec.Config = []byte("no JSON")
	wrong := sample("other")
	long := sample(state.VolumeID(strings.Repeat("x", maxKey+1)))
	for _, changes := range []map[state.VolumeID]*state.Volume{
		{"good": &good, "bad": &bad},
		{"good": &good, "wrong": &wrong},
		{"good": &good, long.ID: &long},
		{"good": &good, "": nil},
	} {
		if err := j.Commit(t.Context(), changes); err == nil {
			t.Errorf("commit of %d records, one of them bad: no error", len(changes))
		}
	}
	got, err := j.Load(t.Context())
	if err != nil || len(got.Volumes) > 0 {
		t.Errorf("after failed commits: %+v, %v", got, err)
	}
	commit(t, j, map[state.VolumeID]*state.Volume{"good": &good})
}

func suiteNotShared(t *testing.T, j journal, _ func(change)) {
	v := sample("v")
	commit(t, j, map[state.VolumeID]*state.Volume{"v": &v})
	v.Spec.Context["a"] = "changed"
	value := []byte("value")
	if err := j.CommitBucket(t.Context(), "objects", map[string][]byte{"k": value}); err != nil {
		t.Fatal(err)
	}
	value[0] = 'X'
	for range 2 {
		got, err := j.Load(t.Context())
		if err != nil || got.Volumes["v"].Spec.Context["a"] != "b" {
			t.Errorf("record: %+v, %v", got.Volumes["v"].Spec.Context, err)
		}
		got.Volumes["v"].Spec.Context["a"] = "changed"
		kv, err := j.LoadBucket(t.Context(), "objects")
		if err != nil || string(kv.Sound["k"]) != "value" {
			t.Errorf("value: %q, %v", kv.Sound["k"], err)
		}
		kv.Sound["k"][0] = 'X'
	}
}

func suiteQuarantine(t *testing.T, j journal, plant func(change)) {
	other, err := EncodeRecord(sample("other"))
	if err != nil {
		t.Fatal(err)
	}
	plant(change{bucket: volumesBucket, values: map[string][]byte{
		"future": []byte(`{"v":9,"crc":"","record":{}}`), "junk": {0, 1, 2}, "moved": other,
	}})
	a := sample("a")
	commit(t, j, map[state.VolumeID]*state.Volume{"a": &a})

	for range 2 { // loading changes nothing
		got, err := j.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Volumes) != 1 || len(got.Quarantined) != 4 {
			t.Fatalf("got %d records and %v", len(got.Volumes), got.Quarantined)
		}
		for id, want := range map[state.VolumeID]string{"future": "newer csi-volmgr", "junk": "not a record", "moved": `has the id "other"`, "other": `key is "moved"`} {
			if why := got.Quarantined[id]; !strings.Contains(why, want) {
				t.Errorf("%s: %q, want %q", id, why, want)
			}
		}
		v := sample("junk")
		if err := j.Commit(t.Context(), map[state.VolumeID]*state.Volume{"junk": &v}); !errors.Is(err, ErrQuarantined) {
			t.Errorf("overwriting an unreadable record: %v", err)
		}
	}

	commit(t, j, map[state.VolumeID]*state.Volume{"junk": nil}) // forgotten on purpose
	v := sample("junk")
	commit(t, j, map[state.VolumeID]*state.Volume{"junk": &v})
	got, err := j.Load(t.Context())
	if err != nil || len(got.Volumes) != 2 || len(got.Quarantined) != 3 {
		t.Errorf("after deletion: %d records, %v, %v", len(got.Volumes), got.Quarantined, err)
	}
}

func suiteBuckets(t *testing.T, j journal, _ func(change)) {
	ctx := t.Context()
	for _, bucket := range []string{"objects", volumesBucket, metaBucket} {
		if err := j.CommitBucket(ctx, bucket, map[string][]byte{"k": []byte(bucket), "gone": {1}, "empty": {}}); err != nil {
			t.Fatal(err)
		}
		if err := j.CommitBucket(ctx, bucket, map[string][]byte{"gone": nil}); err != nil {
			t.Fatal(err)
		}
		got, err := j.LoadBucket(ctx, bucket)
		if d := diff(state.Values{Sound: map[string][]byte{"k": []byte(bucket), "empty": {}}}, got); d != "" || err != nil {
			t.Errorf("bucket %s: %v %s", bucket, err, d)
		}
	}
	if got, err := j.Load(ctx); err != nil || len(got.Volumes)+len(got.Quarantined) > 0 {
		t.Errorf("a bucket named like the records' touched them: %+v, %v", got, err)
	}
	if err := j.CommitBucket(ctx, "", map[string][]byte{"k": {1}}); err == nil {
		t.Error("a bucket without a name: no error")
	}
	if err := j.CommitBucket(ctx, "objects", map[string][]byte{"": {1}}); err == nil {
		t.Error("a key of no bytes: no error")
	}
	if err := j.CommitBucket(ctx, "objects", map[string][]byte{"k": make([]byte, maxValue+1)}); err == nil {
		t.Error("a value over the limit: no error")
	}
}

func suiteDamagedValue(t *testing.T, j journal, plant func(change)) {
	plant(change{bucket: kvPrefix + "objects", values: map[string][]byte{"pod/a": []byte("garbage")}})
	plant(change{bucket: kvPrefix + "objects", values: map[string][]byte{"pod/b": seal([]byte("whole"))}})
	got, err := j.LoadBucket(t.Context(), "objects")
	want := state.Values{Sound: map[string][]byte{"pod/b": []byte("whole")}, Unreadable: map[string]string{"pod/a": "checksum mismatch"}}
	if d := diff(want, got); d != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
}

func suiteContext(t *testing.T, j journal, _ func(change)) {
	why := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for name, err := range calls(ctx, j) {
		if !errors.Is(err, why) {
			t.Errorf("%s: %v, want the context's cause", name, err)
		}
	}
	if got, err := j.Load(t.Context()); err != nil || len(got.Volumes) > 0 {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
}

func suiteClosed(t *testing.T, j journal, _ func(change)) {
	for range 2 {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range calls(t.Context(), j) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}

func calls(ctx context.Context, j journal) map[string]error {
	v := sample("v")
	_, load := j.Load(ctx)
	_, loadBucket := j.LoadBucket(ctx, "objects")
	return map[string]error{
		"Load":         load,
		"LoadBucket":   loadBucket,
		"Commit":       j.Commit(ctx, map[state.VolumeID]*state.Volume{"v": &v}),
		"CommitBucket": j.CommitBucket(ctx, "objects", map[string][]byte{"k": {1}}),
		"SetBootID":    j.SetBootID(ctx, "b"),
	}
}

func commit(t testing.TB, j journal, changes map[state.VolumeID]*state.Volume) {
	t.Helper()
	if err := j.Commit(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 64, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			j := openBolt(b, filepath.Join(b.TempDir(), "state.db"))
			changes := map[state.VolumeID]*state.Volume{}
			for i := range n {
				v := sample(sampleID(i))
				changes[v.ID] = &v
			}
			for b.Loop() {
				commit(b, j, changes)
			}
		})
	}
}

func BenchmarkCommitConcurrent(b *testing.B) {
	for _, n := range []int{16, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			j := openBolt(b, filepath.Join(b.TempDir(), "state.db"))
			b.SetParallelism(n)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					v := sample(sampleID(i % 1000))
					if err := j.Commit(b.Context(), map[state.VolumeID]*state.Volume{v.ID: &v}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
