package state

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
)

// Recovery says that the journal may have lost its newest records. It stays in the
// journal until an operator accepts it: what is mounted without a record may be in use.
type Recovery struct {
	// Why says what was wrong with the file; "" means that nothing was lost.
	Why string `json:"why"`
}

// Lost reports whether records may be lost.
func (r Recovery) Lost() bool { return r.Why != "" }

func recoveryOf(meta map[string][]byte) Recovery {
	b, there := meta[recoveryKey]
	if !there {
		return Recovery{}
	}
	var r Recovery
	if err := json.Unmarshal(b, &r); err != nil || !r.Lost() {
		return Recovery{Why: fmt.Sprintf("an earlier start says so, in words that this version cannot read: %q", b)}
	}
	return r
}

func (r Recovery) encode() []byte {
	b, _ := json.Marshal(r) // of a text
	return b
}

// doubt turns every fact into entering: calls made since may have undone it, or turned
// its removal back, and what is entering is made, or removed, again. It leaves why
// behind for the starts to come.
func (c content) doubt(why string) error {
	volumes, _ := decodeAll(c[volumesBucket])
	for id, v := range volumes {
		b, err := EncodeRecord(doubt(v))
		if err != nil {
			return err
		}
		c[volumesBucket][string(id)] = b
	}
	if c[metaBucket] == nil { // nothing of the file was there
		c[metaBucket] = map[string][]byte{formatKey: strconv.AppendInt(nil, journalFormat, 10)}
	}
	c[metaBucket][recoveryKey] = Recovery{Why: why}.encode()
	return nil
}

func doubt(v Volume) Volume {
	v.Attach, v.Stage = doubtFact(v.Attach), doubtFact(v.Stage)
	mounts := make(map[PodUID]Mount, len(v.Mounts))
	for pod, m := range v.Mounts {
		m.Fact = doubtFact(m.Fact)
		mounts[pod] = m
	}
	v.Mounts = mounts
	return v
}

func doubtFact(f Fact) Fact {
	if f.Phase == Leaving {
		f.Failed = nil // its failures are those of the removal
	}
	if f.Phase != Absent {
		f.Phase = Entering
	}
	return f
}

// Recovery says whether records may be lost, and why.
func (b *Bolt) Recovery() Recovery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recovery
}

// Suspect says durably, where it is not said already, that records may be lost.
func (b *Bolt) Suspect(ctx context.Context, why string) error {
	if b.Recovery().Lost() {
		return nil
	}
	return b.setRecovery(ctx, Recovery{Why: why})
}

// AcceptRecovery says durably that an operator has looked at what is mounted, and that
// no record is missed.
func (b *Bolt) AcceptRecovery(ctx context.Context) error { return b.setRecovery(ctx, Recovery{}) }

func (b *Bolt) setRecovery(ctx context.Context, r Recovery) error {
	var value []byte
	if r.Lost() {
		value = r.encode()
	}
	if err := b.commit(ctx, change{bucket: metaBucket, values: map[string][]byte{recoveryKey: value}}); err != nil {
		return fmt.Errorf("store recovery: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recovery = r
	return nil
}
