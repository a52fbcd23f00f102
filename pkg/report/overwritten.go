package report

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// overwrittenShown is how long the reporter shows that another program replaced the
// list: long enough for an operator to see a writer that comes every five minutes.
const overwrittenShown = 10 * time.Minute

// overwritten counts how often another program replaced status.volumesInUse.
type overwritten struct {
	times       int
	first, last time.Time
	// rewritten is when the reporter wrote it again last.
	rewritten time.Time
}

// notice compares the newest Node with what the reporter wrote last. A volume that the
// list lost is not safe from being detached until the reporter has written it again.
func (r *Reporter) notice(w *inUse, o *overwritten, now time.Time) {
	n := w.node
	if n == nil || w.unanswered != nil || n.UID != w.uid || slices.Equal(n.Status.VolumesInUse, w.written) {
		return
	}
	if w.more && !slices.ContainsFunc(w.written, func(v corev1.UniqueVolumeName) bool {
		return !slices.Contains(n.Status.VolumesInUse, v)
	}) {
		w.written = n.Status.VolumesInUse // another added what it has
		return
	}
	if o.times == 0 {
		o.first = now
	}
	o.times, o.last = o.times+1, now
	r.logger.Warn("another program replaced status.volumesInUse of the Node; it is written again", "node", n.Name,
		"found", len(n.Status.VolumesInUse), "want", len(w.written), "times", o.times)
	w.written = n.Status.VolumesInUse
	r.Event(Event{
		About:   corev1.ObjectReference{Kind: "Node", Name: n.Name, UID: n.UID, APIVersion: "v1"},
		Warning: true, Reason: "VolumesInUseOverwritten", Text: o.text(n.Name),
	})
}

// Two programs that each write their list again and again share the server's time by
// this pause, which begins when it has happened often.
const (
	overwrittenOften = 3
	overwrittenPause = time.Second
)

// pause is how long the next write has to wait.
func (o *overwritten) pause(now time.Time) time.Duration {
	if o.times <= overwrittenOften {
		return 0
	}
	return o.rewritten.Add(overwrittenPause).Sub(now)
}

// paced is the error of a write that waits, and how long.
type paced time.Duration

func (p paced) Error() string {
	return "write status.volumesInUse: another program replaces it again and again; csi-volmgr writes it once a second"
}

func (o *overwritten) text(node string) string {
	return fmt.Sprintf("another program replaced status.volumesInUse of Node %s %d times since %s: a controller may "+
		"detach a volume "+
		"while it is mounted. Stop the other program, or have it leave this field alone; csi-volmgr writes "+
		"it again each time",
		node, o.times, o.first.UTC().Format(time.RFC3339))
}

// showOverwritten shows the problem for a while, and returns how long yet.
func (r *Reporter) showOverwritten(o *overwritten, now time.Time) time.Duration {
	if o.times == 0 {
		return 0
	}
	left := overwrittenShown - now.Sub(o.last)
	text := ""
	if left > 0 {
		text = o.text(r.config.NodeName)
	} else {
		*o = overwritten{}
	}
	r.show("status.volumesInUse is overwritten", text)
	return max(left, 0)
}
