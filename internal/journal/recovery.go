package journal

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// recoveryOf decodes the value of recoveryKey; nil means that there is none.
func recoveryOf(b []byte) state.Recovery {
	if b == nil {
		return state.Recovery{}
	}
	var r state.Recovery
	if err := json.Unmarshal(b, &r); err != nil || !r.Lost() {
		return state.Recovery{Why: fmt.Sprintf("an earlier start noted it, but this version cannot read why: %q", b)}
	}
	return r
}

func encodeRecovery(r state.Recovery) []byte {
	b, _ := json.Marshal(r) // a string field cannot fail
	return b
}

// doubt turns every fact into entering: later calls may have undone it, or reversed its
// removal, and an entering fact is made, or removed, again. It stores why for later
// starts.
func (c content) doubt(why string) error {
	volumes, _ := decodeAll(c[volumesBucket])
	for id, v := range volumes {
		b, err := EncodeRecord(doubt(v))
		if err != nil {
			return err
		}
		c[volumesBucket][string(id)] = b
	}
	if c[metaBucket] == nil { // the file was empty
		c[metaBucket] = newContent()[metaBucket]
	}
	c[metaBucket][recoveryKey] = encodeRecovery(state.Recovery{Why: why})
	return nil
}

// doubted returns a value of a spare copy, as doubt changes it. sound is false if it cannot be read.
func doubted(bucket string, value []byte, sound bool) ([]byte, bool) {
	if !sound || unreadable(bucket, value) != nil || bucket != volumesBucket {
		return value, sound && unreadable(bucket, value) == nil
	}
	v, err := DecodeRecord(value)
	if err == nil {
		value, err = EncodeRecord(doubt(v))
	}
	return value, err == nil
}

func doubt(v state.Volume) state.Volume {
	v.Attach, v.Stage = doubtFact(v.Attach), doubtFact(v.Stage)
	mounts := make(map[state.PodUID]state.Mount, len(v.Mounts))
	for pod, m := range v.Mounts {
		m.Fact = doubtFact(m.Fact)
		mounts[pod] = m
	}
	v.Mounts = mounts
	return v
}

func doubtFact(f state.Fact) state.Fact {
	if f.Phase == state.Leaving {
		f.Failed = nil // these were failures of the removal
	}
	if f.Phase != state.Absent {
		f.Phase = state.Entering
	}
	return f
}

// Recovery returns whether records may be lost, and why.
func (b *Bolt) Recovery() state.Recovery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recovery
}

// Suspect durably notes that records may be lost, unless that is already noted.
func (b *Bolt) Suspect(ctx context.Context, why string) error {
	if b.Recovery().Lost() {
		return nil
	}
	return b.setRecovery(ctx, state.Recovery{Why: why})
}

// AcceptRecovery durably notes that an operator has checked the mounts and that no record
// is missing.
func (b *Bolt) AcceptRecovery(ctx context.Context) error { return b.setRecovery(ctx, state.Recovery{}) }

func (b *Bolt) setRecovery(ctx context.Context, r state.Recovery) error {
	var value []byte
	if r.Lost() {
		value = encodeRecovery(r)
	}
	if err := b.commit(ctx, change{bucket: metaBucket, values: map[string][]byte{recoveryKey: value}}); err != nil {
		return fmt.Errorf("store recovery: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recovery = r
	return nil
}
