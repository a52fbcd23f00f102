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

// Prober is a Kernel that can also ask the storage behind a mount. It is asked
// only where a caller wants a volume verified, and may not hang: the end of ctx
// ends it.
type Prober interface {
	// Probe returns nil if the storage answers.
	Probe(ctx context.Context, path string) error
}

// Pather is a Kernel that can also say of a path of the node itself whether a pod may
// have what it leads to now.
type Pather interface {
	// HostPath returns why not; nil where it may.
	HostPath(ctx context.Context, path string) error
}

// VerifyError says why a pod's volumes cannot be relied on now.
type VerifyError struct {
	Pod state.PodUID
	// Problems are sentences, by volume.
	Problems map[state.VolumeID]string
}

func (e *VerifyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "volumes of pod %s are not as they should be", e.Pod)
	for _, id := range slices.Sorted(maps.Keys(e.Problems)) {
		fmt.Fprintf(&b, "; volume %s: %s", id, e.Problems[id])
	}
	return b.String()
}

// Verify looks at every volume that the pod wants, now, and returns nil if each
// is mounted as it was made and its storage answers; else a [*VerifyError], or
// the cause of ctx's end. What is found gone is made again as ever. It is what a
// container's start asks for: what was mounted a moment ago need not be. Once it
// has returned, [Manager.Volume] shows what was found.
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

// verify has every volume of the pod looked at, and answers when all were.
func (l *loop) verify(uid state.PodUID, answers chan<- map[state.VolumeID]string) {
	p, listed := l.pods.listed[uid]
	problems := map[state.VolumeID]string{}
	waiting := 1
	done := func() {
		if waiting--; waiting == 0 {
			l.answers = append(l.answers, func() { answers <- problems })
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

// answerAll gives each caller of Verify what is wrong with a volume.
func answerAll(asked []func(problem string), problem string) {
	for _, a := range asked {
		a(problem)
	}
}

// probe asks the storage of what is present of v, where the kernel can.
func probe(ctx context.Context, k Kernel, v state.Volume) string {
	if p, ok := k.(Pather); ok {
		for _, m := range v.Mounts {
			if m.Phase != state.Present || m.HostPath == "" {
				continue
			}
			one, cancel := context.WithTimeout(ctx, lookDeadline)
			err := p.HostPath(one, m.HostPath)
			cancel()
			if err != nil {
				return err.Error()
			}
		}
	}
	p, ok := k.(Prober)
	if !ok {
		return ""
	}
	for _, m := range v.Mounts {
		if m.Phase != state.Present || !m.Seen.Mounted || m.Seen.BlockDevice {
			continue
		}
		one, cancel := context.WithTimeoutCause(ctx, lookDeadline, fmt.Errorf("no answer from the storage within %v",
			lookDeadline))
		err := p.Probe(one, m.Target)
		cancel()
		if err != nil {
			return "its storage: " + err.Error()
		}
	}
	return ""
}

// setDrift notes what of the volume is not as it was made, and tells of what is new.
func (l *loop) setDrift(v *volume, now map[string]string) {
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if v.drift[path] != now[path] {
			l.log.Warn("mount is not as it was made", "volume", v.id, "path", path, "reason", now[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(v.drift)) {
		if now[path] == "" {
			l.log.Info("mount is as it was made again", "volume", v.id, "path", path)
		}
	}
	v.drift = now
}

// MountsSeen says what is mounted below the node's root, by path. A
// volume whose mount is missing among it, or is not as it was made, is looked at,
// reported, and made again where that is safe (rule 6). After the journal lost records
// (state.Recovery) nothing new is made before the first of these lists.
func (m *Manager) MountsSeen(mounts map[string]state.Seen) {
	m.post(func(l *loop) { l.compare(mounts) })
}

// compare looks again at volumes that differ from the list, which may be older
// than a record and so only says where to look.
func (l *loop) compare(mounts map[string]state.Seen) {
	l.compareUnrecorded(mounts)
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

// problemOf is what a look found, for who asked to have the volume verified.
func problemOf(changes []plan.Change, unseen bool, drift map[string]string) string {
	switch {
	case len(changes) > 0:
		return changes[0].Why + ", and it is made again"
	case unseen:
		return "the kernel does not say how it stands"
	}
	for _, path := range slices.Sorted(maps.Keys(drift)) {
		return drift[path]
	}
	return ""
}
