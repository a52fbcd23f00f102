package server

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ownersOnly replaces a driver's text, which only owners of the socket may read.
const ownersOnly = "the text is for users who may ask the daemon: csi-volmgr explain"

// public returns f without the texts of CSI drivers, for the status page, which every
// user of the host can read: a driver may quote secrets that it was given. The gRPC
// codes of its answers stay.
func (f Facts) public() Facts {
	f.Pods, f.Volumes, f.Claims = slices.Clone(f.Pods), slices.Clone(f.Volumes), slices.Clone(f.Claims)
	f.Drivers, f.Sockets, f.Stats = publicDrivers(f.Drivers), slices.Clone(f.Sockets), slices.Clone(f.Stats)
	ours := map[state.VolumeID]bool{}
	for i, v := range f.Volumes {
		if ours[v.Volume.ID] = v.Volume.Spec.Value().Builtin; !ours[v.Volume.ID] {
			f.Volumes[i].Volume = redactVolume(v.Volume)
		}
	}
	for i, c := range f.Claims {
		f.Claims[i].Reason, f.Claims[i].Retry = redactOn(c.Cause, c.Reason), RetryOf(redactRetry(c.Retry.retry()))
	}
	for i, p := range f.Pods {
		f.Pods[i].Volumes = slices.Clone(p.Volumes)
		for j, v := range p.Volumes {
			f.Pods[i].Volumes[j] = f.redactPodVolume(v, ours[v.ID])
		}
	}
	f.Snapshots, f.Groups = slices.Clone(f.Snapshots), slices.Clone(f.Groups)
	for i, s := range f.Snapshots {
		f.Snapshots[i].Reason, f.Snapshots[i].Retry = redactReason(s.Reason), RetryOf(redactRetry(s.Retry.retry()))
	}
	for i, g := range f.Groups {
		f.Groups[i].Reason, f.Groups[i].Retry = redactReason(g.Reason), RetryOf(redactRetry(g.Retry.retry()))
	}
	for i := range f.Sockets {
		if f.Sockets[i].Problem != "" {
			f.Sockets[i].Problem = ownersOnly
		}
	}
	for i, s := range f.Stats {
		if s.Error != "" {
			f.Stats[i].Error = ownersOnly
		}
		f.Stats[i].Conditions = slices.Clone(s.Conditions)
		for j := range s.Conditions {
			if c := s.Conditions[j]; !c.Kernel {
				f.Stats[i].Conditions[j] = stats.Condition{Status: cmp.Or(c.Status, "abnormal"), Controller: c.Controller}
			}
		}
	}
	return f
}

// publicDrivers returns the drivers without their texts about why they are not up. The
// text about a driver that never came up is the manager's own and stays.
func publicDrivers(all []manager.DriverStatus) []manager.DriverStatus {
	all = slices.Clone(all)
	for i, d := range all {
		if d.Problem != "" && d.Generation > 0 {
			all[i].Problem = ownersOnly
		}
	}
	return all
}

// redactPodVolume returns v without the words of its driver; builtin says that it has no driver. The
// problem of a volume whose claim is not bound may repeat the reason of the claim, of now or of a
// moment ago: the reason in f, which is redacted, replaces it.
func (f Facts) redactPodVolume(v manager.PodVolumeStatus, builtin bool) manager.PodVolumeStatus {
	if !builtin {
		v.Retry = redactRetry(v.Retry)
	}
	if !v.Unresolved() {
		return v
	}
	for _, c := range f.claimsOf(v) {
		if c.Phase != "Bound" {
			v.BlockedBy = strings.TrimSuffix(fmt.Sprintf("claim %s is %s: %s", c.key(), c.Phase, c.Reason), ": ")
		}
	}
	return v
}

// redactOn is redactReason for a claim, whose cause may say that the reason has no words of a driver.
func redactOn(cause Cause, reason string) string {
	switch cause.Code {
	case "", state.DriverSilent, state.ControllerAway,
		state.NoSnapshot, state.NoSource, state.NoSecret, state.CallFailed, state.BadRecord:
		return redactReason(reason)
	}
	return reason
}

// redactReason returns a controller's reason up to its first colon, which the words of a driver may
// follow.
func redactReason(reason string) string {
	ours, _, cut := strings.Cut(reason, ": ")
	if !cut {
		return reason
	}
	return ours + ": " + ownersOnly
}

func redactRetry(r state.Retry) state.Retry {
	if r.Code != "" {
		r.Error = ""
	}
	r.First, _, _ = strings.Cut(r.First, ":")
	return r
}

func redactFact(f state.Fact) state.Fact {
	if f.Failed != nil {
		f.Failed = new(redactRetry(*f.Failed))
	}
	return f
}

func redactVolume(v state.Volume) state.Volume {
	v.Attach, v.Stage = redactFact(v.Attach), redactFact(v.Stage)
	if v.ExpandFailed != nil {
		v.ExpandFailed = new(redactRetry(*v.ExpandFailed))
	}
	v.Mounts = maps.Clone(v.Mounts)
	for uid, m := range v.Mounts {
		m.Fact = redactFact(m.Fact)
		if m.GroupFailed != "" {
			m.GroupFailed = ownersOnly // it names the volume's files
		}
		v.Mounts[uid] = m
	}
	return v
}
