package server

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Only this file makes the API's answers from what the manager and the journal keep: an
// answer has no field of theirs that this file does not name. Answers share what they
// point to with the manager, which never changes it.

// each converts a list. It keeps nil, since null and [] are different answers.
func each[From, To any](all []From, convert func(From) To) []To {
	if all == nil {
		return nil
	}
	out := make([]To, len(all))
	for i, one := range all {
		out[i] = convert(one)
	}
	return out
}

func volumeStatus(s manager.VolumeStatus) VolumeStatus {
	out := VolumeStatus{
		Volume: volumeOf(s.Volume), Wanted: s.Wanted, Call: opOf(s.Call), Since: s.Since, Progress: s.Progress,
		Held: Held{
			Step: s.Held.Step, Pod: s.Held.Pod, Reason: s.Held.Reason, Dead: s.Held.Dead, Until: s.Held.Until,
			Operator: s.Held.Operator,
		},
		Quarantined: s.Quarantined, Drift: s.Drift,
	}
	if c := s.Unmount; c != nil {
		out.Unmount = &UnmountProgress{
			Kind: c.Kind, Pod: c.Pod, Path: c.Path, Step: c.Step, Since: c.Since, Next: c.Next, At: c.At,
		}
	}
	if l := s.SELinux; l != nil {
		out.SELinux = &SELinuxStatus{Label: l.Label, Applied: l.Applied, Conflicts: l.Conflicts}
	}
	return out
}

func opOf(o plan.Op) Op {
	return Op{Kind: o.Kind, Pod: o.Pod, Revision: o.Revision, SizeBytes: o.SizeBytes, Step: o.Step}
}

func volumeOf(v state.Volume) Volume {
	out := Volume{
		ID: v.ID, Spec: specOf(v.Spec), Needs: Needs{Attach: v.Needs.Attach, Stage: v.Needs.Stage}, For: v.For,
		Attach: factOf(v.Attach), PublishContext: v.PublishContext, Stage: factOf(v.Stage), Staged: seenOf(v.Staged),
		SizeBytes: v.SizeBytes, ExpandFailed: failedOf(v.ExpandFailed),
	}
	if v.Mounts != nil {
		out.Mounts = make(map[state.PodUID]VolumeMount, len(v.Mounts))
	}
	for uid, m := range v.Mounts {
		out.Mounts[uid] = mountOf(m)
	}
	return out
}

func specOf(s *state.Spec) *Spec {
	if s == nil {
		return nil
	}
	return &Spec{
		Driver: s.Driver, Handle: s.Handle, Name: s.Name, Claim: s.Claim, Ephemeral: s.Ephemeral, Builtin: s.Builtin,
		NoAttach: s.NoAttach, Migrated: s.Migrated, Mode: s.Mode, FSType: s.FSType, MountFlags: s.MountFlags,
		MountGroup: s.MountGroup, SELinuxLabel: s.SELinuxLabel, AccessModes: s.AccessModes, Context: s.Context,
		Config: s.Config, PublishContext: s.PublishContext, AttachName: s.AttachName, Attachment: s.Attachment,
		StagePath: s.StagePath, AttachRef: refOf(s.AttachRef), StageRef: refOf(s.StageRef),
		PublishRef: refOf(s.PublishRef), ExpandRef: refOf(s.ExpandRef),
	}
}

func refOf(r state.SecretRef) SecretRef { return SecretRef{Namespace: r.Namespace, Name: r.Name} }

func mountOf(m state.Mount) VolumeMount {
	return VolumeMount{
		Fact: factOf(m.Fact), Pod: podOf(m.Pod), Names: m.Names, Target: m.Target, DevicePath: m.DevicePath,
		HostPath: m.HostPath, ReadOnly: m.ReadOnly, FSGroup: m.FSGroup, SELinuxLabel: m.SELinuxLabel,
		Ownership: m.Ownership, Context: m.Context,
		Renewal: Renewal{
			Tokens: each(m.Renewal.Tokens, tokenOf), InSecrets: m.Renewal.InSecrets, Republish: m.Renewal.Republish,
		},
		Revision: m.Revision, RevisionAt: m.RevisionAt, Seen: seenOf(m.Seen), Waits: m.Waits, RenewAt: m.RenewAt,
		NoEffect: m.NoEffect, GroupFailed: m.GroupFailed,
	}
}

func tokenOf(t state.TokenRequest) TokenRequest {
	return TokenRequest{Audience: t.Audience, Lifetime: t.Lifetime}
}

func factOf(f state.Fact) Fact { return Fact{Phase: f.Phase, Failed: failedOf(f.Failed)} }

func failedOf(r *state.Retry) *RetryStatus {
	if r == nil {
		return nil
	}
	return new(RetryOf(*r))
}

// RetryOf converts r to its form in answers.
func RetryOf(r state.Retry) RetryStatus {
	return RetryStatus{
		Attempts: r.Attempts, Since: r.Since, NotBefore: r.NotBefore, Final: r.Final, Call: r.Call, Code: r.Code,
		Error: r.Error, Step: r.Step, First: r.First, Unanswered: r.Unanswered, Refused: r.Refused, Reason: r.Reason,
		Stray: r.Stray,
	}
}

// retry converts r back to the manager's form, without the fields that answers leave
// out.
func (r RetryStatus) retry() state.Retry {
	return state.Retry{
		Attempts: r.Attempts, Since: r.Since, NotBefore: r.NotBefore, Final: r.Final, Call: r.Call, Code: r.Code,
		Error: r.Error, Step: r.Step, First: r.First, Unanswered: r.Unanswered, Refused: r.Refused, Reason: r.Reason,
		Stray: r.Stray,
	}
}

func seenOf(s state.Seen) Seen {
	return Seen{
		Exists: s.Exists, Mounted: s.Mounted, MountID: s.MountID, Dev: s.Dev, Layers: s.Layers,
		BlockDevice: s.BlockDevice, ReadOnly: s.ReadOnly,
	}
}

func placeOf(p state.Place) Place {
	return Place{Path: p.Path, Pod: p.Pod, Name: p.Name, Builtin: p.Builtin, Kind: p.Kind}
}

func podOf(p state.Pod) Pod {
	return Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, ServiceAccount: p.ServiceAccount}
}

func podStatus(p manager.PodStatus) PodStatus {
	return PodStatus{Pod: podOf(p.Pod), Listed: p.Listed, Ready: p.Ready, Volumes: each(p.Volumes, podVolumeStatus)}
}

func podVolumeStatus(v manager.PodVolumeStatus) PodVolumeStatus {
	return PodVolumeStatus{
		Names: v.Names, ID: v.ID, Driver: v.Driver, Claim: v.Claim, Mode: v.Mode, Mounted: v.Mounted, Phase: v.Phase,
		HostPath: v.HostPath, ReadOnly: v.ReadOnly, ContentAt: v.ContentAt, Step: v.Step.String(), Since: v.Since,
		BlockedBy: v.BlockedBy, Cause: Cause(v.Cause), Unread: v.Unread, Retry: RetryOf(v.Retry), SizeBytes: v.SizeBytes,
		Drift: v.Drift,
	}
}

func driverStatus(d manager.DriverStatus) DriverStatus {
	return DriverStatus{
		Name: d.Name, Endpoint: d.Endpoint, Version: d.Version, Builtin: d.Builtin, NodeID: d.NodeID,
		Topology: d.Topology, MaxVolumes: d.MaxVolumes, Capabilities: d.Capabilities, Stage: d.Stage, Expand: d.Expand,
		Attach: d.Attach, MountGroup: d.MountGroup, Deadline: d.Deadline, MountsTarget: d.MountsTarget, Up: d.Up,
		Problem: d.Problem, Lacks: d.Lacks, Unreached: d.Unreached, Generation: d.Generation, Volumes: d.Volumes,
		Calls: d.Calls, Limit: d.Limit, Since: d.Since,
	}
}

func endedCall(c manager.EndedCall) EndedCall {
	return EndedCall{
		Volume: c.Volume, Driver: c.Driver, Migrated: c.Migrated, Op: c.Op, Step: c.Step, SizeBytes: c.SizeBytes,
		Pod: c.Pod, Began: c.Began, TookNanos: c.TookNanos, Code: c.Code, Error: c.Error, Outcome: c.Outcome,
		NoEffect: c.NoEffect,
	}
}
