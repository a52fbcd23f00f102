package sim

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// criRuntime is the container runtime, as one life of the daemon asks it about pods that have left
// or stopped. It answers late, may see their containers for a while, and then sees none.
type criRuntime struct{ l *life }

// Ask implements manager.Containers.
func (r criRuntime) Ask(pod state.PodUID, answer func(why string)) (forget func()) {
	w := r.l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(r.l.ended, pod)
	ends := time.Duration(w.dice("containers", pod, r.l.number)%10_000) * time.Millisecond
	sees := time.AfterFunc(ends/2, func() { answer("a container of the pod is running") })
	gone := time.AfterFunc(ends, func() {
		w.mu.Lock()
		r.l.ended[pod] = true
		w.judge.left(r.l, string(pod))
		w.mu.Unlock()
		answer("")
	})
	return func() {
		sees.Stop()
		gone.Stop()
	}
}
