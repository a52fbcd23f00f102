package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// VerifyError says why a pod's volumes cannot be used now.
type VerifyError struct {
	Pod state.PodUID
	// Problems has a sentence for each volume with a problem; "" is the pod itself.
	Problems map[state.VolumeID]string
}

func (e *VerifyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "volumes of pod %s cannot be used", e.Pod)
	for _, id := range slices.Sorted(maps.Keys(e.Problems)) {
		fmt.Fprintf(&b, "; volume %s: %s", id, e.Problems[id])
	}
	return b.String()
}

// Verify checks every volume that the pod wants, now. It returns nil if each is mounted
// as it was made and its storage answers, else a [*VerifyError] or the cause of ctx's end.
// It is called before a container starts, since a mount may have vanished a moment ago. A
// vanished mount is made again, as always. When Verify returns, [Manager.Volume] shows what
// it found.
func (m *Manager) Verify(ctx context.Context, uid state.PodUID) error {
	answers := make(chan map[state.VolumeID]string, 1)
	m.post(func(l *loop) { l.verify(uid, answers) })
	select {
	case problems := <-answers:
		if len(problems) > 0 {
			return &VerifyError{Pod: uid, Problems: problems}
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.ended:
		return ErrEnded
	}
}

// verify has every volume of the pod compared with the kernel, and answers when all are done.
func (l *loop) verify(uid state.PodUID, answers chan<- map[state.VolumeID]string) {
	p, listed := l.pods.listed[uid]
	problems := map[state.VolumeID]string{}
	waiting := 1
	done := func() {
		if waiting--; waiting == 0 {
			l.replies = append(l.replies, func() { answers <- problems })
		}
	}
	defer done()
	if !listed || p.Stopped {
		problems[""] = "no source lists the pod, or it has ended"
		return
	}
	for _, vw := range p.Volumes {
		id := vw.ID
		v := state.Volume{}
		if row := l.volumes[id]; row != nil {
			v = row.recordOrEmpty()
		}
		if vw.Unresolved() || v.Mounts[uid].Phase != state.Present || v.Needs.Stage && v.Stage.Phase != state.Present {
			problems[id] = "it is not mounted"
			continue
		}
		waiting++
		l.suspect(id, func(problem string) {
			if problem != "" {
				problems[id] = problem
			}
			done()
		})
	}
}

// answerAll tells each caller of Verify what is wrong with a volume.
func answerAll(asked []func(problem string), problem string) {
	for _, a := range asked {
		a(problem)
	}
}

// probe checks the host paths of v's mounts, asks their storage, and returns the first problem.
func probe(ctx context.Context, k Kernel, v state.Volume) string {
	for _, m := range v.Mounts {
		if m.Phase != state.Present || m.HostPath == "" {
			continue
		}
		one, cancel := context.WithTimeout(ctx, lookDeadline)
		err := k.HostPath(one, m.HostPath)
		cancel()
		if err != nil {
			return err.Error()
		}
	}
	for _, m := range v.Mounts {
		if m.Phase != state.Present || !m.Seen.Mounted || m.Seen.BlockDevice {
			continue
		}
		one, cancel := context.WithTimeoutCause(ctx, lookDeadline, fmt.Errorf("no answer from the storage within %v",
			lookDeadline))
		err := k.Probe(one, m.Target)
		cancel()
		if err != nil {
			return "its storage: " + err.Error()
		}
	}
	return ""
}

// setDrift replaces the volume's drift, and logs what has changed.
func (l *loop) setDrift(v *volume, now map[string]string) {
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if v.drift[path] != now[path] {
			l.log.Warn("mount has drifted", "volume", v.id, "path", path, "reason", now[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(v.drift)) {
		if now[path] == "" {
			l.log.Info("drifted mount is restored", "volume", v.id, "path", path)
		}
	}
	v.drift = now
}

// MountsSeen reports what is mounted below the node's root, by path. A volume whose mount
// is missing or has changed is compared with the kernel, reported, and mounted again if
// that is safe (rule 6). If the journal lost records (state.Recovery), nothing new is
// mounted before the first call.
func (m *Manager) MountsSeen(mounts map[string]state.Seen) {
	m.post(func(l *loop) { l.compare(mounts) })
}

// compare marks the volumes whose records differ from the list as suspects. The list may be
// older than a record, so it only says where to look.
func (l *loop) compare(mounts map[string]state.Seen) {
	l.updateUnrecorded(mounts)
	l.updateLeft(mounts)
	differs := func(path string, was state.Seen) bool {
		now, mounted := mounts[path]
		return was.Mounted && (!mounted || now.Layers != was.Layers || now.ReadOnly != was.ReadOnly ||
			now.MountID != was.MountID)
	}
	for id, v := range l.volumes {
		r := v.recordOrEmpty()
		suspect := len(v.drift) > 0 || r.Stage.Phase == state.Present && differs(r.Spec.StagePath, r.Staged)
		for _, m := range r.Mounts {
			suspect = suspect || m.Phase == state.Present && differs(m.Target, m.Seen)
		}
		if suspect {
			l.suspect(id)
		}
	}
}

// problemOf returns the result of a look for callers of Verify.
func problemOf(changes []plan.Change, unseen bool, drift map[string]string) string {
	switch {
	case len(changes) > 0:
		return changes[0].Why + ", and is made again"
	case unseen:
		return "its mounts cannot be examined"
	}
	for _, path := range slices.Sorted(maps.Keys(drift)) {
		return drift[path]
	}
	return ""
}
