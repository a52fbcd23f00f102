// Package stats keeps the usage and the health of volumes: the last answers of drivers and the kernel,
// and when they came.
//
// Owns: when each subject is asked, the last answers with their age, changes of health, and the metrics
// kubelet_volume_stats_*.
//
// Does not: know what a driver is or which call asks it; a Question has that. No client waits for
// storage: it reads the last answers, and only the first client waits, for a second at most. Figures that
// no client reads are not asked for: 1,000 idle volumes cost nothing.
package stats

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNone is what Question.Ask returns if no driver can answer.
var ErrNone = errors.New("no driver reports it")

// Usage is how much of a resource a volume has; a field is 0 if the driver does not report it.
type Usage struct {
	Total     int64 `json:"total,omitempty"`
	Used      int64 `json:"used,omitempty"`
	Available int64 `json:"available,omitempty"`
}

// Condition is one problem, in a driver's words.
type Condition struct {
	// Status is CSI's name for it ("DEGRADED", "STORAGE_UNREACHABLE"); "" if the driver's CSI
	// is older than 1.13 and has no names.
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// AccessMode and VolumeMode tell which volumes the problem concerns, if it is one of a driver's
	// storage and does not concern all of them.
	AccessMode state.AccessMode `json:"accessMode,omitempty"`
	VolumeMode state.Mode       `json:"volumeMode,omitempty"`
	// Kernel reports whether the kernel found the problem, not the driver.
	Kernel bool `json:"kernel,omitempty"`
	// Controller reports whether the driver's Controller service found the problem, for all nodes;
	// otherwise the driver found it on this node.
	Controller bool `json:"controller,omitempty"`
}

// Word returns Status as Kubernetes spells it ("StorageUnreachable").
func (c Condition) Word() string {
	var word strings.Builder
	for part := range strings.SplitSeq(c.Status, "_") {
		if part != "" {
			word.WriteString(part[:1] + strings.ToLower(part[1:]))
		}
	}
	return word.String()
}

// Report is one answer. Together with an error it has the part that was answered: a driver may tell how
// full a volume is but not its health, or the other way round.
type Report struct {
	// Measured reports whether Bytes and Inodes are in the answer. An answer without an error always has
	// them.
	Measured bool
	Bytes    Usage
	Inodes   Usage
	// Diagnosed reports whether the driver can tell what is wrong. Conditions is then all of it.
	Diagnosed  bool
	Conditions []Condition
}

// Health is the health of a subject; "" means unknown.
type Health string

// The known healths.
const (
	Healthy  Health = "healthy"
	Abnormal Health = "abnormal"
)

// storageKey begins the key of a driver's storage.
const storageKey = "driver "

// StorageKey returns the key of a driver's storage.
func StorageKey(driver state.DriverName) string { return storageKey + string(driver) }

// IsStorageKey reports whether a key is that of a driver's storage.
func IsStorageKey(key string) bool { return strings.HasPrefix(key, storageKey) }

// Subject is a volume on this node, or a driver's storage.
type Subject struct {
	// Key is a volume's id, or [StorageKey].
	Key    string
	Driver state.DriverName
	// Claim is "namespace/name" of the claim; "" if there is none.
	Claim string
	// Watched reports whether an answer may report a problem, which must be known even if no client
	// reads. Other subjects have only figures, and are asked while a client reads those.
	Watched bool
	// Mortal reports whether Question.Alive is asked every 10 seconds, between the questions. It is for
	// storage whose death no driver reports and that is cheap to ask. When the storage dies or is back,
	// the whole question is asked at once.
	Mortal bool
}

// Question is how a Subject is asked.
type Question struct {
	// Source names who answers, for metrics: a driver's name, or "statfs".
	Source string
	// Deadline bounds a question that is work; the longer it takes, the less often it is asked. 0 means
	// 15 seconds: a driver that takes longer is not healthy.
	Deadline time.Duration
	// Ask asks. It should honour ctx. While a call for a subject has not returned, no other call is made
	// for it.
	Ask func(ctx context.Context) (Report, error)
	// Alive returns nil if the storage of a Mortal subject answers.
	Alive func(ctx context.Context) error
}

// Status is what is known about a subject.
type Status struct {
	Key    string           `json:"key"`
	Driver state.DriverName `json:"driver,omitempty"`
	Claim  string           `json:"claim,omitempty"`
	Bytes  Usage            `json:"bytes,omitzero"`
	Inodes Usage            `json:"inodes,omitzero"`
	// At is when the last answer came; zero if there is none yet.
	At time.Time `json:"at,omitzero"`
	// Asking is since when a question is open; zero if none is open.
	Asking time.Time `json:"asking,omitzero"`
	// Error is why the last question failed; "" if it did not.
	Error      string      `json:"error,omitempty"`
	Health     Health      `json:"health,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	// HealthSince is when Health or Conditions last changed.
	HealthSince time.Time `json:"healthSince,omitzero"`
}

// String returns the condition in one line.
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

// with returns s updated with the answer r, given at now.
func (s Status) with(r Report, now time.Time) Status {
	s.Bytes, s.Inodes, s.At, s.Error = r.Bytes, r.Inodes, now, ""
	return s.judged(r, now)
}

// merged returns s updated with an answer that failed in part: the parts that failed keep their last
// answers.
func (s Status) merged(r Report, now time.Time) Status {
	if r.Measured {
		s.Bytes, s.Inodes = r.Bytes, r.Inodes
	}
	if r.Measured || r.Diagnosed {
		s.At = now
	}
	if r.Diagnosed {
		s = s.judged(r, now)
	}
	return s
}

// judged returns s with the health that r reports.
func (s Status) judged(r Report, now time.Time) Status {
	health := Health("")
	switch {
	case r.Diagnosed && len(r.Conditions) > 0:
		health = Abnormal
	case r.Diagnosed:
		health = Healthy
	}
	if health != s.Health || !slices.Equal(r.Conditions, s.Conditions) {
		s.Health, s.Conditions, s.HealthSince = health, slices.Clone(r.Conditions), now
	}
	return s
}
