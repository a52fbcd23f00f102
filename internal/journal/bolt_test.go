package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestSecondOpenerIsTurnedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	openBolt(t, path)
	_, err := OpenBolt(path)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("got %v, want ErrLocked", err)
	}
	for _, want := range []string{path, fmt.Sprintf("process %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
}

func TestLockEndsWithClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for range 3 {
		b, err := OpenBolt(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// OpenBolt does not wait without end if another tool holds bbolt's own lock on the file.
func TestForeignLockIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := OpenBolt(path); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v, want ErrLocked", err)
	}
}

// Items: N-06.
func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	must(t, openBolt(t, filepath.Join(dir, "state.db")).Spare(t.Context()))
	for name, want := range map[string]os.FileMode{"": 0o700, "state.db": 0o600, "state.db.spare": 0o600, "state.db.lock": 0o600} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, st.Mode(), err, want)
		}
	}
}

func TestCallersOfOneMomentShareOneTransaction(t *testing.T) {
	const callers = 50
	b := openBolt(t, filepath.Join(t.TempDir(), "state.db"))
	before := lastTx(t, b)
	release := holdWriter(t, b)

	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			v := sample(sampleID(i))
			if i%2 == 0 {
				errs <- b.Commit(t.Context(), map[state.VolumeID]*state.Volume{v.ID: &v})
				return
			}
			errs <- b.CommitBucket(t.Context(), "objects", map[string][]byte{string(v.ID): {1}})
		}()
		if i == 0 {
			waitQueued(b, 0) // the writer takes the first call alone
		}
	}
	waitQueued(b, callers-1)
	release()
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := lastTx(t, b) - before; got != 2 {
		t.Errorf("%d callers took %d transactions, want 2", callers, got)
	}
	got, err := b.Load(t.Context())
	kv, kvErr := b.LoadBucket(t.Context(), "objects")
	if err != nil || kvErr != nil || len(got.Volumes) != callers/2 || len(kv.Sound) != callers/2 {
		t.Errorf("stored %d records and %d values, %v, %v", len(got.Volumes), len(kv.Sound), err, kvErr)
	}
}

func TestCancelledCommitIsNotWrittenOrSaysThatItMayBe(t *testing.T) {
	b := openBolt(t, filepath.Join(t.TempDir(), "state.db"))
	release := holdWriter(t, b)
	why := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	put := func(id state.VolumeID, errs chan<- error) {
		v := sample(id)
		errs <- b.Commit(ctx, map[state.VolumeID]*state.Volume{id: &v})
	}
	begun, queued := make(chan error, 1), make(chan error, 1)
	go put("begun", begun)
	waitQueued(b, 0)
	go put("queued", queued)
	waitQueued(b, 1)

	cancel(why)
	if err := <-begun; !errors.Is(err, state.ErrUnknown) || !errors.Is(err, why) {
		t.Errorf("write under way: %v, want ErrUnknown and the cause", err)
	}
	if err := <-queued; errors.Is(err, state.ErrUnknown) || !errors.Is(err, why) {
		t.Errorf("write not begun: %v, want only the cause", err)
	}
	release()
	last := sample("last") // the writer commits it after all others
	commit(t, b, map[state.VolumeID]*state.Volume{"last": &last})
	got, err := b.Load(t.Context())
	if _, ok := got.Volumes["queued"]; ok || err != nil {
		t.Errorf("a commit that was taken back was written: %v", err)
	}
}

func TestFullJournalLosesNothingAndRecovers(t *testing.T) {
	b := openBolt(t, filepath.Join(t.TempDir(), "state.db"))
	first := sample("first")
	commit(t, b, map[state.VolumeID]*state.Volume{"first": &first})
	b.db.MaxSize = 64 << 10 // like on a full disk, the file cannot grow

	large := map[string][]byte{"k": make([]byte, 1<<20)}
	if err := b.CommitBucket(t.Context(), "objects", large); err == nil {
		t.Fatal("no error")
	}
	got, err := b.Load(t.Context())
	if err != nil || len(got.Volumes) != 1 {
		t.Errorf("after the failure: %+v, %v", got, err)
	}
	b.db.MaxSize = 0
	if err := b.CommitBucket(t.Context(), "objects", large); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestDiskFailureEndsTheUseOfTheFile(t *testing.T) {
	b, err := OpenBolt(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	_ = b.noteDamage(fmt.Errorf("sync: %w", unix.EIO))
	for name, err := range calls(t.Context(), b) {
		if !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "until the daemon is restarted") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Close(); !errors.Is(err, unix.EIO) {
		t.Errorf("Close: %v", err)
	}
}

func TestDamageWhileOpenIsAnErrorAndNoCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b, err := OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	v := sample("v")
	commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
	if err := os.Truncate(path, 0); err != nil { // reading the memory map now faults
		t.Fatal(err)
	}
	if _, err := b.Load(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("Load: %v, want ErrDamaged", err)
	}
	if err := b.Commit(t.Context(), map[state.VolumeID]*state.Volume{"v": &v}); !errors.Is(err, ErrDamaged) {
		t.Errorf("Commit: %v, want ErrDamaged", err)
	}
	if err := b.Close(); !errors.Is(err, ErrDamaged) {
		t.Errorf("Close: %v, want ErrDamaged", err)
	}
	if b = openBolt(t, path); b.Recovery().Why == "" {
		t.Error("opened again without the spare copy")
	}
}

func TestFutureFormatIsRefusedAndUntouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	if err := b.commit(t.Context(), change{bucket: metaBucket, values: map[string][]byte{formatKey: []byte("2")}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenBolt(path)
	if !errors.Is(err, ErrFormat) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want ErrFormat", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the refused file changed (%v)", err)
	}
}

func TestWhatWasReportedDurableSurvivesSIGKILL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	reported := map[state.VolumeID]bool{}
	for life := range 4 {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledChild$")
		child.Env = append(os.Environ(), "CSI_VOLMGR_TEST_JOURNAL="+path, fmt.Sprintf("CSI_VOLMGR_TEST_LIFE=%d", life))
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		stop := len(reported) + 50 + life*37
		for lines.Scan() {
			reported[state.VolumeID(lines.Text())] = true
			if len(reported) == stop {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait()
		if len(reported) < stop {
			t.Fatalf("the child ended after %d records: %v", len(reported), child.ProcessState)
		}
	}
	b := openBolt(t, path)
	got, err := b.Load(t.Context())
	if err != nil || b.Recovery().Why != "" || len(got.Quarantined) > 0 {
		t.Fatalf("after SIGKILL: %v, recovered %q, quarantined %v", err, b.Recovery().Why, got.Quarantined)
	}
	for id := range reported {
		if d := diff(sample(id), got.Volumes[id]); d != "" {
			t.Errorf("%s, reported durable: %s", id, d)
		}
	}
}

// TestKilledChild is the process that TestWhatWasReportedDurableSurvivesSIGKILL kills.
func TestKilledChild(t *testing.T) {
	path, life := os.Getenv("CSI_VOLMGR_TEST_JOURNAL"), os.Getenv("CSI_VOLMGR_TEST_LIFE")
	if path == "" {
		return
	}
	b := openBolt(t, path)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 100_000 {
				v := sample(state.VolumeID(fmt.Sprintf("%s-%d-%d", life, g, i)))
				commit(t, b, map[state.VolumeID]*state.Volume{v.ID: &v})
				fmt.Fprintln(os.Stdout, v.ID)
			}
		})
	}
	wg.Wait()
}

// Faults: A003.
func TestDamagedFileFallsBackToTheSpare(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"garbage": func(t *testing.T, path string) { write(t, path, []byte(strings.Repeat("garbage", 10_000))) },
		"empty":   func(t *testing.T, path string) { write(t, path, nil) },
		"short":   func(t *testing.T, path string) { write(t, path, read(t, path)[:100]) },
		"cut":     func(t *testing.T, path string) { write(t, path, read(t, path)[:3*4096]) },
		"gone":    func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"foreign": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			db, err := bolt.Open(path, 0o600, nil)
			must(t, err)
			must(t, db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("other")); return err }))
			must(t, db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			b := openBolt(t, path)
			v := sample("v")
			commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
			must(t, b.SetBootID(t.Context(), "boot"))
			must(t, b.CommitBucket(t.Context(), "objects", map[string][]byte{"k": {7}}))
			must(t, b.Close())
			damage(t, path)

			b = openBolt(t, path)
			if b.Recovery().Why == "" {
				t.Error("Recovered does not say so")
			}
			got, err := b.Load(t.Context())
			must(t, err)
			want := sample("v")
			want.Attach.Phase, want.Stage.Phase = state.Entering, state.Entering
			p1, p2 := want.Mounts["p1"], want.Mounts["p2"]
			p1.Fact, p2.Phase = state.Fact{Phase: state.Entering}, state.Entering // it was leaving, and may have come back since
			want.Mounts = map[state.PodUID]state.Mount{"p1": p1, "p2": p2}
			why := b.Recovery()
			if d := diff(state.Loaded{Volumes: map[state.VolumeID]state.Volume{"v": want}, BootID: "boot", Recovery: why}, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if kv, err := b.LoadBucket(t.Context(), "objects"); err != nil || len(kv.Sound) != 1 {
				t.Errorf("bucket: %v, %v", kv, err)
			}
			if _, err := os.Stat(path + damagedSuffix); (err == nil) != (name != "gone") {
				t.Errorf("the damaged file was put aside: %v", err)
			}
			must(t, b.Close())
			if b = openBolt(t, path); b.Recovery() != why {
				t.Errorf("the next start says %v, want %v", b.Recovery(), why)
			}
			must(t, b.AcceptRecovery(t.Context()))
			must(t, b.Close())
			if b = openBolt(t, path); b.Recovery() != (state.Recovery{}) {
				t.Errorf("once accepted the next start says %v", b.Recovery())
			}
		})
	}
}

// A daemon that was killed leaves a recent spare copy, too.
func TestSpareFollowsTheJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	for i := range 3 * maxSpareLag {
		v := sample(sampleID(i))
		commit(t, b, map[state.VolumeID]*state.Volume{v.ID: &v})
		b.writer.Wait() // the writer has no caller left and may renew the copy
		if i != 0 && i != maxSpareLag && i != 3*maxSpareLag-1 {
			continue
		}
		copied := filepath.Join(t.TempDir(), "state.db")
		write(t, copied, read(t, path+spareSuffix))
		spare := openBolt(t, copied)
		got, err := spare.Load(t.Context())
		must(t, err)
		if n := len(got.Volumes); n > i+1 || n < i+1-maxSpareLag || i == 0 && n != 1 {
			t.Errorf("after %d commits the spare copy has %d records", i+1, n)
		}
	}
}

// A start does not wait for the spare copy. If the start has not asked for the copy, the
// first change waits for it: nothing is written while the copy is older than the start.
func TestSpareOfWhatWasOpenedIsMadeAfterTheStartAndBeforeAChange(t *testing.T) {
	for _, asked := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "state.db")
		b := openBolt(t, path)
		v := sample("v")
		commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
		must(t, b.Close())
		must(t, os.Remove(path+spareSuffix))

		b = openBolt(t, path)
		if _, err := os.Stat(path + spareSuffix); err == nil {
			t.Error("opening makes the copy")
		}
		release := holdWriter(t, b)
		written := make(chan error, 1)
		if asked {
			must(t, b.Spare(t.Context()))
		} else {
			go func() { written <- b.SetBootID(t.Context(), "boot") }()
			for _, err := os.Stat(path + spareSuffix); err != nil; _, err = os.Stat(path + spareSuffix) {
				runtime.Gosched() // the change is not written before the copy exists
			}
		}
		copied := filepath.Join(t.TempDir(), "state.db")
		write(t, copied, read(t, path+spareSuffix))
		got, err := openBolt(t, copied).Load(t.Context())
		must(t, err)
		if len(got.Volumes) != 1 || got.BootID != "" {
			t.Errorf("the copy has %d records of boot %q", len(got.Volumes), got.BootID)
		}
		release()
		if !asked {
			must(t, <-written)
		}
	}
}

// A backup that is put in place as the advice says counts as older: records may be lost, and facts are in doubt.
//
// Faults: A186.
func TestABackupInPlaceOfTheSpareCopyIsDoubted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	v := state.Volume{ID: "d^v", Spec: &state.Spec{Driver: "d", Handle: "v"}, Stage: state.Fact{Phase: state.Present}}
	must(t, b.Commit(t.Context(), map[state.VolumeID]*state.Volume{v.ID: &v}))
	must(t, b.Close())
	backup := read(t, path)
	must(t, os.Remove(path))
	write(t, path+spareSuffix, backup)
	b = openBolt(t, path)
	loaded, err := b.Load(t.Context())
	if err != nil || !b.Recovery().Lost() || loaded.Volumes["d^v"].Stage.Phase != state.Entering {
		t.Errorf("%v, %+v, %v", b.Recovery(), loaded.Volumes["d^v"].Stage, err)
	}
	must(t, b.Close())
}

func TestDamagedFileWithoutSoundSpareIsRefusedWithAdvice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for _, spare := range []string{"", "garbage"} {
		write(t, path, []byte("garbage"))
		if spare != "" {
			write(t, path+spareSuffix, []byte(spare))
		}
		_, err := OpenBolt(path)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "copy a backup of it to "+path+spareSuffix) {
			t.Errorf("spare %q: %v, want ErrDamaged and what to do", spare, err)
		}
		if got := read(t, path); string(got) != "garbage" {
			t.Errorf("spare %q: the damaged file was touched: %q", spare, got)
		}
	}
}

func TestDamagedFilesAreKeptUpToALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	must(t, b.Close())
	for range maxDamaged {
		write(t, path, []byte("garbage"))
		b := openBolt(t, path)
		must(t, b.Close())
	}
	write(t, path, []byte("the eleventh"))
	b = openBolt(t, path)
	must(t, b.Close())
	kept, err := filepath.Glob(path + damagedSuffix + "*")
	must(t, err)
	last := fmt.Sprintf("%s%s.%d", path, damagedSuffix, maxDamaged-1)
	if len(kept) != maxDamaged || string(read(t, last)) != "the eleventh" || string(read(t, path+damagedSuffix)) != "garbage" {
		t.Errorf("%d are kept: %v", len(kept), kept)
	}
}

// Whatever happens to the file's bytes, opening and loading it does not crash, and returns
// no record that was not written.
//
// Faults: A003.
func TestDamageIsNeverReadAsARecord(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	b := openBolt(t, path)
	changes := map[state.VolumeID]*state.Volume{}
	for i := range 60 {
		v := sample(sampleID(i))
		changes[v.ID] = &v
	}
	commit(t, b, changes)
	must(t, b.SetBootID(t.Context(), "boot"))
	must(t, b.Close())
	sound := read(t, path)

	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		damaged := append([]byte{}, sound...)
		if i%5 == 0 {
			damaged = damaged[:rng.IntN(len(damaged))]
		}
		for range rng.IntN(20) {
			damaged[rng.IntN(len(damaged))] ^= 1 << rng.IntN(8)
		}
		path := filepath.Join(dir, fmt.Sprint(i), "state.db")
		must(t, os.Mkdir(filepath.Dir(path), 0o700))
		write(t, path, damaged)
		b, err := OpenBolt(path)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Errorf("case %d: %v", i, err)
			}
			continue
		}
		got, err := b.Load(t.Context())
		must(t, err)
		for id, v := range got.Volumes {
			want := sample(id)
			if b.Recovery().Why != "" {
				want = doubt(want)
			}
			if d := diff(want, v); d != "" {
				t.Errorf("case %d: %s is not what was written: %s", i, id, d)
			}
		}
		_ = b.Close() // a truncated file cannot be copied, and Close says so
	}
}

// One record at a time is truncated, has a bit flipped, or is stored under a key with a bit
// flipped: it is quarantined under its key, and no other record is.
//
// Faults: A003.
// Attacks: C26.
func TestADamagedRecordIsQuarantinedAndNoOther(t *testing.T) {
	const records = 5
	for name, damage := range map[string]func(b *bolt.Bucket, key, value []byte) error{
		"cut off": func(b *bolt.Bucket, key, _ []byte) error { return b.Put(key, nil) },
		"half":    func(b *bolt.Bucket, key, value []byte) error { return b.Put(key, value[:len(value)/2]) },
		"flipped": func(b *bolt.Bucket, key, value []byte) error {
			value = bytes.Clone(value)
			value[len(value)/2] ^= 1
			return b.Put(key, value)
		},
		"renamed": func(b *bolt.Bucket, key, value []byte) error {
			other := append(bytes.Clone(key[:len(key)-1]), key[len(key)-1]^0x40)
			return errors.Join(b.Put(other, bytes.Clone(value)), b.Delete(key))
		},
	} {
		for i := range records {
			path := filepath.Join(t.TempDir(), "state.db")
			b := openBolt(t, path)
			changes := map[state.VolumeID]*state.Volume{}
			for j := range records {
				v := sample(sampleID(j))
				changes[v.ID] = &v
			}
			commit(t, b, changes)
			must(t, b.db.Update(func(tx *bolt.Tx) error {
				bucket := tx.Bucket([]byte(volumesBucket))
				key := []byte(sampleID(i))
				return damage(bucket, key, bucket.Get(key))
			}))
			must(t, b.Close())
			b = openBolt(t, path)
			got, err := b.Load(t.Context())
			must(t, err)
			if got.Quarantined[sampleID(i)] == "" || len(got.Quarantined) > 2 || len(got.Volumes) != records-1 {
				t.Errorf("%s, record %d: in quarantine %v, read %d", name, i, got.Quarantined, len(got.Volumes))
			}
			for id, v := range got.Volumes {
				if d := diff(sample(id), v); d != "" || id == sampleID(i) {
					t.Errorf("%s, record %d: %s was read: %s", name, i, id, d)
				}
			}
			must(t, b.Close())
		}
	}
}

// Damage that bbolt itself does not notice: two keys out of order.
func TestKeysOutOfOrderAreDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	changes := map[state.VolumeID]*state.Volume{}
	for i := range 5 {
		v := sample(sampleID(i))
		changes[v.ID] = &v
	}
	commit(t, b, changes)
	must(t, b.Close())
	sound := string(read(t, path))
	damaged := strings.ReplaceAll(sound, string(sampleID(2))+`{"v"`, string(sampleID(9))+`{"v"`)
	if damaged == sound {
		t.Fatal("the key was not found in the file")
	}
	write(t, path, []byte(damaged))
	must(t, os.Remove(path+spareSuffix))
	if _, err := OpenBolt(path); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("got %v, want ErrDamaged", err)
	}
}

func TestSpareThatCannotBeMadeIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	must(t, os.MkdirAll(path+spareSuffix+".new/x", 0o700)) // so that nothing can be written there
	b, err := OpenBolt(path)
	must(t, err)
	if b.Spare(t.Context()) == nil {
		t.Error("no error")
	}
	v := sample("v")
	commit(t, b, map[state.VolumeID]*state.Volume{"v": &v}) // the journal itself works
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v; the journal itself is whole", err)
	}
	if b.SpareErr() == nil {
		t.Error("once closed: no error")
	}
	b, err = OpenBolt(path)
	must(t, err)
	if got, err := b.Load(t.Context()); err != nil || len(got.Volumes) != 1 {
		t.Errorf("%d records, %v", len(got.Volumes), err)
	}
	must(t, b.Close())
}

// If the journal turns out to be damaged when it is closed, Close fails.
func TestDamageThatShowsAtTheCloseIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b, err := OpenBolt(path)
	must(t, err)
	must(t, os.Truncate(path, 0)) // the memory map has no pages any more
	if err := b.Close(); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v, want ErrDamaged", err)
	}
}

// holdWriter keeps the next transaction waiting until release is called.
func holdWriter(t *testing.T, b *Bolt) (release func()) {
	tx, err := b.db.Begin(true)
	must(t, err)
	return func() { must(t, tx.Rollback()) }
}

// waitQueued waits until the writer runs and n callers wait behind its batch.
func waitQueued(b *Bolt, n int) {
	for {
		b.mu.Lock()
		ok := b.writing && len(b.queue) == n
		b.mu.Unlock()
		if ok {
			return
		}
		runtime.Gosched()
	}
}

func lastTx(t *testing.T, b *Bolt) (id int) {
	must(t, b.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil }))
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	must(t, os.WriteFile(path, b, 0o600))
}
