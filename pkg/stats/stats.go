// Package stats keeps the usage and the health of volumes: what drivers and
// the kernel last said, and when.
//
// Owns: when each subject is asked, the last answers with their age, changes of
// health, and the metrics kubelet_volume_stats_*.
//
// Does not: know what a driver is or which call asks it; a Question brings that.
// No client waits for storage: it reads what was said last, and the
// first to do so waits a second at most. Figures that no client reads are not asked
// for: 1,000 idle volumes cost nothing.
package stats

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNone is what Subject.Ask returns where no driver can say anything.
var ErrNone = errors.New("nobody says")

// Usage is how much of something a volume has; a field is 0 where no driver says.
type Usage struct {
	Total     int64 `json:"total,omitempty"`
	Used      int64 `json:"used,omitempty"`
	Available int64 `json:"available,omitempty"`
}

// Condition is one thing that is wrong, in a driver's words.
type Condition struct {
	// Status is what CSI calls it ("DEGRADED", "STORAGE_UNREACHABLE"); "" where
	// the driver, older than CSI 1.13, has no word for it.
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// AccessMode and VolumeMode are of the volumes that it concerns, where it is a
	// driver's storage and not all of them.
	AccessMode state.AccessMode `json:"accessMode,omitempty"`
	VolumeMode state.Mode       `json:"volumeMode,omitempty"`
	// Kernel: it is the kernel that says so, not the driver.
	Kernel bool `json:"kernel,omitempty"`
	// Controller: the driver's Controller service says so, of the volume for all nodes; false is the driver as
	// seen from this node.
	Controller bool `json:"controller,omitempty"`
}

// Word is Status as Kubernetes spells it ("StorageUnreachable").
func (c Condition) Word() string {
	var word strings.Builder
	for part := range strings.SplitSeq(c.Status, "_") {
		if part != "" {
			word.WriteString(part[:1] + strings.ToLower(part[1:]))
		}
	}
	return word.String()
}

// Report is one answer. Beside an error it has what was answered all the same: a driver may tell
// how full a volume is and not how it fares, or the other way round.
type Report struct {
	// Measured: Bytes and Inodes are in the answer. An answer without an error has them in any case.
	Measured bool
	Bytes    Usage
	Inodes   Usage
	// Judged: the driver can say what is wrong, and Conditions is all of it.
	Judged     bool
	Conditions []Condition
}

// Health of a subject; "" is not known.
type Health string

// What is known of health.
const (
	Healthy  Health = "healthy"
	Abnormal Health = "abnormal"
)

// storageKey begins the key of a driver's storage.
const storageKey = "driver "

// StorageKey is the key of a driver's storage.
func StorageKey(driver state.DriverName) string { return storageKey + string(driver) }

// OfStorage reports whether a key is of a driver's storage.
func OfStorage(key string) bool { return strings.HasPrefix(key, storageKey) }

// Subject is a volume on this node, or a driver's storage.
type Subject struct {
	// Key is a volume's id, or [StorageKey].
	Key    string
	Driver state.DriverName
	// Claim is "namespace/name" of the claim; "" for what has none.
	Claim string
	// Watched: its answer may say that something is wrong, which is to be known
	// although no client reads. Others have figures only, and are asked while one
	// reads those.
	Watched bool
	// Mortal: between the questions, every 10 seconds, Question.Alive is asked: for
	// storage whose death no driver tells of and that costs little to ask. When it dies
	// or is back, all is asked at once.
	Mortal bool
}

// Question is how a Subject is asked.
type Question struct {
	// Source says who answers, for metrics: a driver's name, or "statfs".
	Source string
	// Deadline bounds a question that is work, and is asked the more seldom the
	// longer it takes; 0 is 15 seconds, in which a driver answers or is not well.
	Deadline time.Duration
	// Ask asks. It should honour ctx; while one call of a subject has not
	// returned, no other is made.
	Ask func(ctx context.Context) (Report, error)
	// Alive returns nil if the storage of a Mortal subject answers.
	Alive func(ctx context.Context) error
}

// Status is what is known of a subject.
type Status struct {
	Key    string           `json:"key"`
	Driver state.DriverName `json:"driver,omitempty"`
	Claim  string           `json:"claim,omitempty"`
	Bytes  Usage            `json:"bytes,omitzero"`
	Inodes Usage            `json:"inodes,omitzero"`
	// At is when this was said; zero where nothing was yet.
	At time.Time `json:"at,omitzero"`
	// Asking is since when a question has had no answer; zero where none is open.
	Asking time.Time `json:"asking,omitzero"`
	// Error is why the last question failed; "" where it did not.
	Error      string      `json:"error,omitempty"`
	Health     Health      `json:"health,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	// HealthSince is when Health or Conditions changed last.
	HealthSince time.Time `json:"healthSince,omitzero"`
}

// String is a condition in one line.
func (c Condition) String() string {
	text := c.Status
	for _, s := range []string{c.Reason, c.Message} {
		if s != "" && text != "" {
			text += ": "
		}
		text += s
	}
	return text
}

// with returns s after the answer r, given at now.
func (s Status) with(r Report, now time.Time) Status {
	s.Bytes, s.Inodes, s.At, s.Error = r.Bytes, r.Inodes, now, ""
	return s.judged(r, now)
}

// merged returns s after an answer that failed in part: what failed leaves what was said before.
func (s Status) merged(r Report, now time.Time) Status {
	if r.Measured {
		s.Bytes, s.Inodes = r.Bytes, r.Inodes
	}
	if r.Measured || r.Judged {
		s.At = now
	}
	if r.Judged {
		s = s.judged(r, now)
	}
	return s
}

// judged returns s with the health that r tells.
func (s Status) judged(r Report, now time.Time) Status {
	health := Health("")
	switch {
	case r.Judged && len(r.Conditions) > 0:
		health = Abnormal
	case r.Judged:
		health = Healthy
	}
	if health != s.Health || !slices.Equal(r.Conditions, s.Conditions) {
		s.Health, s.Conditions, s.HealthSince = health, slices.Clone(r.Conditions), now
	}
	return s
}
