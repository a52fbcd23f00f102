package journal

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Memory is a journal that ends with its process, for tests and for embedders that keep
// no state. It is safe for concurrent use. It stores encoded values, so it shares no
// memory with its callers.
type Memory struct {
	mu      sync.Mutex
	buckets map[string]map[string][]byte // guarded by mu
	// quarantined says why records could not be read in the last Load; guarded by mu.
	quarantined map[state.VolumeID]string
	closed      bool // guarded by mu
}

// NewMemory returns an empty journal.
func NewMemory() *Memory {
	return &Memory{buckets: map[string]map[string][]byte{}}
}

// Load returns every record, and why any others cannot be read.
func (m *Memory) Load(ctx context.Context) (state.Loaded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return state.Loaded{}, fmt.Errorf("load records: %w", err)
	}
	volumes, quarantined := decodeAll(m.buckets[volumesBucket])
	m.quarantined = maps.Clone(quarantined)
	return state.Loaded{
		Volumes: volumes, Quarantined: quarantined, BootID: string(m.buckets[metaBucket][bootIDKey]),
		Recovery: recoveryOf(m.buckets[metaBucket][recoveryKey]),
	}, nil
}

// Commit stores all changes or none. A nil value deletes.
func (m *Memory) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := recordChange(changes, m.quarantined)
	if err != nil {
		return err
	}
	if err := m.apply(ctx, c); err != nil {
		return fmt.Errorf("commit %d records: %w", len(changes), err)
	}
	for id := range changes {
		delete(m.quarantined, id)
	}
	return nil
}

// SetBootID stores the boot id.
func (m *Memory) SetBootID(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.apply(ctx, change{bucket: metaBucket, values: map[string][]byte{bootIDKey: []byte(id)}}); err != nil {
		return fmt.Errorf("store boot id: %w", err)
	}
	return nil
}

// LoadBucket returns a copy of a bucket; a bucket that was never written is empty.
func (m *Memory) LoadBucket(ctx context.Context, bucket string) (state.Values, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return state.Values{}, fmt.Errorf("load bucket %q: %w", bucket, err)
	}
	stored := map[string][]byte{}
	for key, b := range m.buckets[kvPrefix+bucket] {
		stored[key] = bytes.Clone(b)
	}
	return unsealAll(stored), nil
}

// CommitBucket stores all changes to a bucket or none. A nil value deletes.
func (m *Memory) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	c, err := bucketChange(bucket, changes)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.apply(ctx, c); err != nil {
		return fmt.Errorf("commit %d values of bucket %q: %w", len(changes), bucket, err)
	}
	return nil
}

// Copy returns a journal with the current content of m, as a spare copy is.
func (m *Memory) Copy() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	for name, values := range m.buckets {
		c.buckets[name] = maps.Clone(values) // values are replaced, never changed
	}
	return c
}

// Doubt treats m as OpenBolt treats a spare copy when the file is damaged: every fact is
// in doubt, and Recovery says why.
func (m *Memory) Doubt(why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return content(m.buckets).doubt(why)
}

// AcceptRecovery is the counterpart of [Bolt.AcceptRecovery].
func (m *Memory) AcceptRecovery(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.apply(ctx, change{bucket: metaBucket, values: map[string][]byte{recoveryKey: nil}}); err != nil {
		return fmt.Errorf("store recovery: %w", err)
	}
	return nil
}

// Close ends the journal; every later call fails with ErrClosed.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// usable must be called with mu held.
func (m *Memory) usable(ctx context.Context) error {
	if m.closed {
		return ErrClosed
	}
	return context.Cause(ctx)
}

// apply must be called with mu held.
func (m *Memory) apply(ctx context.Context, c change) error {
	if err := m.usable(ctx); err != nil {
		return err
	}
	if m.buckets[c.bucket] == nil {
		m.buckets[c.bucket] = map[string][]byte{}
	}
	for key, value := range c.values {
		if value == nil {
			delete(m.buckets[c.bucket], key)
			continue
		}
		m.buckets[c.bucket][key] = bytes.Clone(value)
	}
	return nil
}
