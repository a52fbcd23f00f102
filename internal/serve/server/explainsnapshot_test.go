package server

import (
	"path/filepath"
	"testing"
	"time"
)

// snapshotOf returns a node with one snapshot of claim default/data, as modified by change.
func snapshotOf(change func(*SnapshotStatus)) Facts {
	s := SnapshotStatus{
		Namespace: "default", Name: "monday", Phase: "Pending", Claim: "data", Class: "nightly", Driver: nfs,
		Since: before(40 * time.Second), DeletionPolicy: "Delete",
	}
	change(&s)
	other := SnapshotStatus{Namespace: "shop", Name: "monday", Phase: "Pending", Reason: "of another namespace"}
	return Facts{Snapshots: []SnapshotStatus{other, s}, Now: now}
}

// made sets what a driver reports of a snapshot that it has made.
func made(s *SnapshotStatus) {
	s.Handle, s.Content, s.Created, s.RestoreBytes = "snap-1", "snapcontent-1", before(time.Hour), 1<<20
}

// One chain explains why a snapshot is not ready, and what ends that.
//
// Sidecars: SS-32.
func TestSnapshotsAreExplained(t *testing.T) {
	for _, tt := range []situation{
		{"snapshot-ready", "snapshot", "default/monday", Fine, snapshotOf(func(s *SnapshotStatus) {
			made(s)
			s.Phase, s.Ready = "Ready", true
		})},
		{"snapshot-in-flight", "snapshot", "default/monday", Working, snapshotOf(func(s *SnapshotStatus) {
			s.Call, s.Retry = "CreateSnapshot", RetryOf(failed("CreateSnapshot", "Unavailable", "array is offline", 5))
		})},
		{"snapshot-fails", "snapshot", "default/monday", Working, snapshotOf(func(s *SnapshotStatus) {
			s.Reason, s.Until = "CreateSnapshot: Unavailable: array is offline", now.Add(12*time.Second)
			s.Retry = RetryOf(failed("CreateSnapshot", "Unavailable", "array is offline", 1))
		})},
		{"snapshot-fails-again", "snapshot", "default/monday", Stuck, snapshotOf(func(s *SnapshotStatus) {
			s.Reason, s.Until = "CreateSnapshot: Unavailable: array is offline", now.Add(12*time.Second)
			s.Retry = RetryOf(failed("CreateSnapshot", "Unavailable", "array is offline", 5))
		})},
		{"snapshot-refused", "snapshot", "default/monday", Stuck, snapshotOf(func(s *SnapshotStatus) {
			s.Reason, s.Refused = "CreateSnapshot: InvalidArgument: no such tier; not repeated until the driver, the snapshot or its class changes", true
			s.Retry = RetryOf(failed("CreateSnapshot", "InvalidArgument", "no such tier", 1))
			s.Retry.Final = true
		})},
		{"snapshot-waits-for-its-driver", "snapshot", "default/monday", Waiting, snapshotOf(func(s *SnapshotStatus) {
			s.Reason, s.Retry = "driver nfs.example.com is not registered", RetryOf(failed("CreateSnapshot", "Unavailable", "array is offline", 1))
		})},
		{"snapshot-of-no-claim", "snapshot", "default/monday", Stuck, snapshotOf(func(s *SnapshotStatus) {
			s.Driver, s.Refused = "", true
			s.Reason = "spec.source.persistentVolumeClaimName: found data, but there is no such claim in namespace default"
		})},
		{"snapshot-not-ready", "snapshot", "default/monday", Waiting, snapshotOf(func(s *SnapshotStatus) {
			made(s)
			s.Reason, s.Until, s.Retry = "the driver says that it is not ready yet", now.Add(30*time.Second), RetryStatus{Attempts: 3, Since: before(40 * time.Second)}
		})},
		{"snapshot-goes", "snapshot", "default/monday", Waiting, snapshotOf(func(s *SnapshotStatus) {
			made(s)
			s.Phase, s.Reason = "Deleting", "the volume of claim default/copy is being made of it"
		})},
		{"snapshot-kept", "snapshot", "default/monday", Fine, snapshotOf(func(s *SnapshotStatus) {
			made(s)
			s.Phase, s.Ready, s.Claim, s.Class = "Released", true, "", ""
		})},
		{"nothing-known-of-snapshot", "snapshot", "default/tuesday", Unknown, snapshotOf(func(*SnapshotStatus) {})},
	} {
		t.Run(tt.file, func(t *testing.T) {
			e, err := Explain(tt.facts, tt.kind, tt.name)
			if err != nil {
				t.Fatal(err)
			}
			if e.Verdict != tt.verdict {
				t.Errorf("verdict %q, want %q", e.Verdict, tt.verdict)
			}
			golden(t, filepath.Join("testdata", "explain", tt.file+".txt"), e.String())
		})
	}
}
