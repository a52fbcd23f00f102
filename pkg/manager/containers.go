package manager

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// Containers reports whether containers of a pod are running. cri.Runtime implements it.
type Containers interface {
	// Ask calls answer, on another goroutine, with the reason why containers of the pod
	// may still run, each time that this reason changes, and finally with "" when none
	// does. forget ends the calls. Neither Ask nor forget may block. An answer is never
	// older than the call of Ask.
	Ask(pod state.PodUID, answer func(why string)) (forget func())
}

const reasonAsked = "the container runtime has not said yet whether containers of the pod are running"

// asked is a pod that has left, or has stopped, and may still have running containers.
type asked struct {
	why    string // "" if none is running
	forget func()
}

// living says why containers of a pod may still run although no source lists the pod, or its
// source says that they have ended; "" if none runs, or if there is no runtime to ask. The
// runtime is asked only after every source has listed its pods, since an earlier answer
// would be out of date when it matters.
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

// answered stores the runtime's answer, unless the pod has been listed again since.
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

// unask ends the question about a pod that is wanted again, or has no volumes left.
func (l *loop) unask(uid state.PodUID) {
	if a := l.pods.asked[uid]; a != nil {
		a.forget()
		delete(l.pods.asked, uid)
	}
}
