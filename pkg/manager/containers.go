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

// runtimeQuery is a pod that has left, or has stopped, and may still have running containers.
type runtimeQuery struct {
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
	if a := l.pods.queries[uid]; a != nil {
		return a.why
	}
	if len(l.gates.unsynced) == 0 {
		a := &runtimeQuery{why: reasonAsked}
		l.pods.queries[uid] = a
		a.forget = l.cfg.Containers.Ask(uid, func(why string) {
			l.m.post(func(l *loop) { l.setAnswer(uid, a, why) })
		})
	}
	return reasonAsked
}

// setAnswer stores the runtime's answer, unless the pod has been listed again since.
func (l *loop) setAnswer(uid state.PodUID, a *runtimeQuery, why string) {
	if l.pods.queries[uid] != a {
		return
	}
	a.why = why
	if why == "" {
		l.endPod(uid)
	}
	l.markPod(uid)
}

// stopAsking ends the question about a pod that is wanted again, or has no volumes left.
func (l *loop) stopAsking(uid state.PodUID) {
	if a := l.pods.queries[uid]; a != nil {
		a.forget()
		delete(l.pods.queries, uid)
	}
}
