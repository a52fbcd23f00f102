package manager

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// Containers says whether containers of a pod live; cri.Runtime is one.
type Containers interface {
	// Ask has answer called, by another goroutine, with why containers of the pod
	// may live, whenever that has become something else, and with "" when none
	// does, which is the last word. forget ends that. Neither may block. What is
	// said is no older than the call of Ask.
	Ask(pod state.PodUID, answer func(why string)) (forget func())
}

// reasonAsked is why nothing is taken from a pod that has just left.
const reasonAsked = "the container runtime has not said yet whether containers of the pod live"

// asked is a pod that left its source and whose containers may live.
type asked struct {
	why    string // "": none does
	forget func()
}

// living says why containers of a pod may live that no source lists, or whose
// source says that they ended; "" where none does, or where there is no runtime to
// ask. It is asked only once every source has spoken: an answer of before would be
// out of date by the time that it counts.
func (l *loop) living(uid state.PodUID) string {
	if l.cfg.Containers == nil {
		return ""
	}
	if a := l.pods.asked[uid]; a != nil {
		return a.why
	}
	if len(l.gates.unsynced) == 0 {
		a := &asked{why: reasonAsked}
		l.pods.asked[uid] = a
		a.forget = l.cfg.Containers.Ask(uid, func(why string) {
			l.m.post(func(l *loop) { l.answered(uid, a, why) })
		})
	}
	return reasonAsked
}

// answered takes over what the runtime says, unless the pod was listed again since.
func (l *loop) answered(uid state.PodUID, a *asked, why string) {
	if l.pods.asked[uid] != a {
		return
	}
	a.why = why
	if why == "" {
		l.leave(uid)
	}
	l.touchPod(uid)
}

// unask forgets what was asked of a pod that is wanted again, or has nothing left.
func (l *loop) unask(uid state.PodUID) {
	if a := l.pods.asked[uid]; a != nil {
		a.forget()
		delete(l.pods.asked, uid)
	}
}
