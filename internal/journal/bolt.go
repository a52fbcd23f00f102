package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Bolt is the durable journal: one bbolt file, locked for this process. It is safe for
// concurrent use; changes committed at the same moment share one durable write (group
// commit).
type Bolt struct {
	path string
	// db is used by one goroutine at a time, the holder of access: a panic in bbolt may
	// leave bbolt's own locks held, and a second goroutine would wait for them for ever.
	db     *bolt.DB
	sums   sums // the checksums of db's content
	access sync.Mutex
	// lock is held while the journal is open.
	lock     *os.File
	mu       sync.Mutex
	recovery state.Recovery // guarded by mu
	queue    []*pending     // guarded by mu; bounded by the number of blocked callers
	writing  bool           // guarded by mu: a goroutine runs write
	writer   sync.WaitGroup
	closed   bool  // guarded by mu
	broken   error // guarded by mu: why the file is no longer used
	// givenUp is closed when broken is set.
	givenUp chan struct{}
	// written counts transactions; when it reaches spareDue, the spare copy is renewed.
	// Only the writer uses both.
	written, spareDue int
	opened            sync.Once // makes the first spare copy after opening
	// roomFor is the file size for which room was last reserved; only the writer uses it.
	roomFor  int
	spareErr error // guarded by mu
	refused  error // guarded by mu: why the last write failed
	// quarantined says why records could not be read in the last Load; guarded by mu.
	quarantined map[state.VolumeID]string
}

// OpenBolt opens the journal at path. It creates the file, with mode 0600, and its
// directory if they do not exist.
//
// It returns ErrLocked if another process holds the journal, and ErrFormat if the file
// has a newer format. It renames a damaged file to <path>.damaged and restores the spare
// copy in its place: then Recovery says so, and every fact is entering, because later
// calls may have changed it. Without a sound spare copy it returns ErrDamaged.
//
// The spare copy is made by Spare, at the latest before the first change, then every
// maxSpareLag transactions, and by Close.
func OpenBolt(path string) (*Bolt, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	b := &Bolt{path: path, lock: lock, spareDue: 1, givenUp: make(chan struct{})}
	b.db, b.sums, b.recovery, err = openDB(path)
	if errors.Is(err, ErrDamaged) {
		if err = restoreSpare(path, err); err == nil {
			b.db, b.sums, b.recovery, err = openDB(path)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", path, err), lock.Close())
	}
	b.keepRoom()
	return b, nil
}

// GivenUp returns a channel that is closed when the file is found damaged or its disk
// fails. From then on every call fails with the error that Err returns. Only opening the
// journal anew helps, because that reads and checks the whole file.
func (b *Bolt) GivenUp() <-chan struct{} { return b.givenUp }

// Err returns why the journal was given up; nil if it was not.
func (b *Bolt) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken
}

// SpareErr returns why the last attempt to make the spare copy failed; nil if it
// succeeded or none was due yet. A failed attempt leaves the earlier copy in place. If
// the disk was full and has room again, SpareErr makes another attempt.
func (b *Bolt) SpareErr() error {
	b.mu.Lock()
	again := noRoom(b.spareErr) && !b.closed
	if again {
		b.writer.Add(1) // Close waits
	}
	b.mu.Unlock()
	if again {
		if free, _ := diskRoom(b.path); free > int64(b.size()) {
			b.copySpare()
		}
		b.writer.Done()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spareErr
}

// Load returns every record, and why any others cannot be read. The latter stay in the
// journal until they are deleted, and Commit refuses to overwrite them.
func (b *Bolt) Load(ctx context.Context) (state.Loaded, error) {
	stored, err := b.read(ctx, volumesBucket)
	if err != nil {
		return state.Loaded{}, fmt.Errorf("load records: %w", err)
	}
	meta, err := b.read(ctx, metaBucket)
	if err != nil {
		return state.Loaded{}, fmt.Errorf("load boot id: %w", err)
	}
	volumes, quarantined := decodeAll(stored)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quarantined = maps.Clone(quarantined)
	return state.Loaded{
		Volumes: volumes, Quarantined: quarantined,
		BootID: string(meta[bootIDKey]), Recovery: recoveryOf(meta[recoveryKey]),
	}, nil
}

// Commit makes all changes durable, or none, before it returns. A nil value deletes. If
// ctx ends during the write, the error is ErrUnknown. On a full disk, changes that begin
// something fail with ErrFull.
func (b *Bolt) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	b.mu.Lock()
	quarantined := b.quarantined // replaced, never changed
	b.mu.Unlock()
	c, err := recordChange(changes, quarantined)
	if err != nil {
		return err
	}
	if err := b.commit(ctx, c); errors.Is(err, state.ErrFull) {
		return err // names the disk, and what to do
	} else if err != nil {
		return fmt.Errorf("commit %d records: %w", len(changes), err)
	}
	b.release(changes)
	return nil
}

// release ends the quarantine of records that were deleted.
func (b *Bolt) release(changes map[state.VolumeID]*state.Volume) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.quarantined) == 0 {
		return
	}
	left := maps.Clone(b.quarantined)
	for id := range changes {
		delete(left, id)
	}
	b.quarantined = left
}

// BootID returns the boot under which the records were last written; "" if never set.
func (b *Bolt) BootID(ctx context.Context) (string, error) {
	meta, err := b.read(ctx, metaBucket)
	if err != nil {
		return "", fmt.Errorf("load boot id: %w", err)
	}
	return string(meta[bootIDKey]), nil
}

// SetBootID durably stores the boot id.
func (b *Bolt) SetBootID(ctx context.Context, id string) error {
	c := change{bucket: metaBucket, values: map[string][]byte{bootIDKey: []byte(id)}}
	if err := b.commit(ctx, c); err != nil {
		return fmt.Errorf("store boot id: %w", err)
	}
	return nil
}

// LoadBucket returns a copy of a bucket; a bucket that was never written is empty.
func (b *Bolt) LoadBucket(ctx context.Context, bucket string) (state.Values, error) {
	stored, err := b.read(ctx, kvPrefix+bucket)
	if err != nil {
		return state.Values{}, fmt.Errorf("load bucket %q: %w", bucket, err)
	}
	return unsealAll(stored), nil
}

// CommitBucket makes all changes to a bucket durable, or none, like Commit. A nil value
// deletes.
func (b *Bolt) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	c, err := bucketChange(bucket, changes)
	if err != nil {
		return err
	}
	if err := b.commit(ctx, c); errors.Is(err, state.ErrFull) {
		return err // names the disk, and what to do
	} else if err != nil {
		return fmt.Errorf("commit %d values of bucket %q: %w", len(changes), bucket, err)
	}
	return nil
}

// Close waits for writes under way, makes the spare copy and closes the file. A spare
// copy that cannot be made, for example on a full disk, is reported by SpareErr only: the
// journal is whole and durable without it. Every later call fails with ErrClosed; a
// second Close does nothing.
func (b *Bolt) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.writer.Wait()

	b.access.Lock()
	defer b.access.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		b.spareErr = saveSpare(b.db, b.path)
		if errors.Is(b.spareErr, ErrDamaged) {
			b.giveUp(b.spareErr)
		}
	}
	if b.broken != nil {
		// After a panic bbolt may hold its own locks for ever: do not close it.
		return errors.Join(b.broken, b.lock.Close())
	}
	if err := errors.Join(b.db.Close(), b.lock.Close()); err != nil {
		return fmt.Errorf("close journal %s: %w", b.path, err)
	}
	return nil
}

func (b *Bolt) read(ctx context.Context, bucket string) (map[string][]byte, error) {
	b.mu.Lock()
	err := b.usable(ctx)
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	err = b.withFile(func() error {
		return b.db.View(func(tx *bolt.Tx) error {
			if tx.Bucket([]byte(bucket)) == nil {
				return nil
			}
			return tx.Bucket([]byte(bucket)).ForEach(func(k, v []byte) error {
				values[string(k)] = append([]byte{}, v...)
				return nil
			})
		})
	})
	return values, err
}

// withFile runs fn on the file, unless the file is known to be damaged.
func (b *Bolt) withFile(fn func() error) error {
	b.access.Lock()
	defer b.access.Unlock()
	b.mu.Lock()
	broken := b.broken
	b.mu.Unlock()
	if broken != nil {
		return broken
	}
	return b.noteDamage(catchDamage(fn))
}

// usable must be called with mu held.
func (b *Bolt) usable(ctx context.Context) error {
	switch {
	case b.closed:
		return ErrClosed
	case b.broken != nil:
		return b.broken
	}
	return context.Cause(ctx)
}
