package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrEnded means that Run has returned, so nothing will change.
var ErrEnded = errors.New("the volume manager has ended")

// WaitError means that a wait ended too early. It says of each volume that is not mounted
// (or not gone) yet what it is waiting for.
type WaitError struct {
	Pod state.Pod
	// Listed: some source lists the pod.
	Listed bool
	// Volumes are those that are not mounted, or not gone.
	Volumes []PodVolumeStatus
	// Stray says what else may be mounted for the pod, without a readable record; "" if
	// nothing is, and in a wait for mounts.
	Stray string
	// At is when the wait ended.
	At time.Time
	// Cause is why it ended: the cause of its context, ErrEnded, or ErrRefused.
	Cause error
}

func (e *WaitError) Unwrap() error { return e.Cause }

func (e *WaitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "wait for pod %s/%s: %v", e.Pod.Namespace, e.Pod.Name, e.Cause)
	if e.Stray != "" {
		b.WriteString("; " + e.Stray)
	}
	if !e.Listed && len(e.Volumes) == 0 && e.Stray == "" {
		fmt.Fprintf(&b, ": no source of pods lists it (uid %s)", e.Pod.UID)
	}
	for _, v := range e.Volumes {
		b.WriteString("; " + v.Line(e.At))
	}
	return b.String()
}

// Line describes the volume's status at the time now, in one line.
func (s PodVolumeStatus) Line(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "volume %s: ", strings.Join(s.Names, ","))
	if s.Mounted && s.Step == plan.None {
		b.WriteString("mounted at " + s.HostPath)
		if s.Drift != "" {
			b.WriteString(", but " + s.Drift)
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%s", s.Phase)
	if s.Step != plan.None {
		fmt.Fprintf(&b, ", at step %s", s.Step)
	}
	if s.Driver != "" {
		fmt.Fprintf(&b, " by driver %s", s.Driver)
	}
	if !s.Since.IsZero() {
		fmt.Fprintf(&b, " for %s", now.Sub(s.Since).Round(time.Second))
	}
	if s.BlockedBy != "" {
		b.WriteString(", " + s.BlockedBy)
	}
	if r := s.Retry; r.Attempts > 0 {
		fmt.Fprintf(&b, ", %d failed attempts over %s, last %s", r.Attempts, now.Sub(r.Since).Round(time.Second), r.Call)
		if r.Code != "" {
			b.WriteString(" " + r.Code)
		}
		b.WriteString(": " + r.Error)
		if r.NotBefore.After(now) {
			fmt.Fprintf(&b, ", next attempt in %s", r.NotBefore.Sub(now).Round(time.Second))
		}
	}
	return b.String()
}

// WaitForAttachAndMount waits until every volume that the pod's containers use
// is mounted as wanted. It returns nil at once for a pod that wants none. The
// kubelet's polls every 300 ms for up to 2 m 3 s and gives up at the first error
// of any volume. This one is woken by changes and ends only with ctx; then it
// returns a *WaitError.
func (m *Manager) WaitForAttachAndMount(ctx context.Context, uid state.PodUID) error {
	return m.wait(ctx, uid, untilMounted())
}

// WaitUnlessRefused is WaitForAttachAndMount, except that it also ends, with an error that
// wraps ErrRefused, once a driver's answer forbids repeating a call that the pod's volumes
// need. It is for callers whose own client would wait in vain.
func (m *Manager) WaitUnlessRefused(ctx context.Context, uid state.PodUID) error {
	w := untilMounted()
	w.refused = (*snapshot).refused
	return m.wait(ctx, uid, w)
}

// WaitForUnmount waits until none of the pod's volumes is mounted or may be mounted. The
// kubelet's ignores uncertain mounts; this one waits for them too.
func (m *Manager) WaitForUnmount(ctx context.Context, uid state.PodUID) error {
	return m.wait(ctx, uid, wait{
		done: (*snapshot).unmounted, missing: func(v PodVolumeStatus) bool { return v.Phase != state.Absent }, gone: true,
	})
}

// WaitForAllPodsUnmount calls WaitForUnmount for all pods and joins the errors.
func (m *Manager) WaitForAllPodsUnmount(ctx context.Context, uids []state.PodUID) error {
	errs := make([]error, len(uids))
	var wg sync.WaitGroup
	for i, uid := range uids {
		wg.Go(func() { errs[i] = m.WaitForUnmount(ctx, uid) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ErrRefused is the cause of a *WaitError if waiting longer would not help.
var ErrRefused = errors.New("the driver refuses the call")

// wait is a condition to wait for. done reports whether it holds for a pod, missing reports
// whether it fails for a volume, and refused, if not nil, whether it cannot come true.
type wait struct {
	done    func(*snapshot, state.PodUID) bool
	missing func(PodVolumeStatus) bool
	refused func(*snapshot, state.PodUID) bool
	// gone: the wait is for unmounts.
	gone bool
}

func untilMounted() wait {
	return wait{done: (*snapshot).ready, missing: func(v PodVolumeStatus) bool { return !v.Mounted || v.Unresolved() }}
}

// wait waits until w holds for the pod. It takes into account all events posted before it.
func (m *Manager) wait(ctx context.Context, uid state.PodUID, w wait) error {
	cause := m.Settle(ctx)
	settled := cause == nil
	for {
		changed, leave := m.podWatch(uid)
		m.snapshot.mu.RLock()
		done := settled && w.done(m.snapshot, uid)
		if !done && cause == nil && w.refused != nil && w.refused(m.snapshot, uid) {
			cause = ErrRefused
		}
		m.snapshot.mu.RUnlock()
		if !done && cause == nil {
			select {
			case <-changed:
			case <-ctx.Done():
				cause = context.Cause(ctx) // check once more
			case <-m.ended:
				cause = ErrEnded
			}
			leave()
			continue
		}
		leave()
		if done {
			return nil
		}
		s, _ := m.Pod(uid)
		if s.Pod.UID == "" {
			s.Pod.UID = uid
		}
		missing := slices.DeleteFunc(s.Volumes, func(v PodVolumeStatus) bool { return !w.missing(v) })
		e := &WaitError{Pod: s.Pod, Listed: s.Listed, Volumes: missing, At: time.Now(), Cause: cause}
		if w.gone {
			m.snapshot.mu.RLock()
			e.Stray = m.snapshot.strays.reason(uid)
			m.snapshot.mu.RUnlock()
		}
		return e
	}
}

// ready reports whether every volume that the pod wants is mounted; snap.mu is held.
func (snap *snapshot) ready(uid state.PodUID) bool {
	want, listed := snap.pods[uid]
	if !listed || want.Stopped {
		return false
	}
	for _, vw := range want.Volumes {
		v := snap.volume(vw.ID)
		if vw.Unresolved() || !v.mounted(v.Volume.Mounts[uid]) {
			return false
		}
	}
	return true
}

// refused reports whether a driver's last answer forbids repeating a call that a volume of
// the pod needs; snap.mu is held.
func (snap *snapshot) refused(uid state.PodUID) bool {
	return slices.ContainsFunc(snap.pods[uid].Volumes, func(vw state.VolumeWant) bool {
		v := snap.volume(vw.ID).Volume
		return v.Attach.Retry().Final || v.Stage.Retry().Final || v.Mounts[uid].Retry().Final
	})
}

// unmounted reports whether none of the pod's volumes may be mounted; snap.mu is held.
func (snap *snapshot) unmounted(uid state.PodUID) bool {
	for _, id := range snap.byPod[uid] {
		if snap.volumes[id].Volume.Mounts[uid].Phase != state.Absent {
			return false
		}
	}
	return snap.strays.reason(uid) == ""
}
