package report

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// overwrittenShown is how long the reporter shows that another program replaced the
// list: longer than five minutes, so that a program that writes that often stays visible.
const overwrittenShown = 10 * time.Minute

// overwritten counts how often another program replaced status.volumesInUse.
type overwritten struct {
	times       int
	first, last time.Time
	// rewritten is when the reporter last wrote its own list.
	rewritten time.Time
}

// notice compares the newest Node with the list that the reporter last wrote. A controller
// may detach a volume that another program removed until the reporter writes it again.
func (r *Reporter) notice(w *inUse, o *overwritten, now time.Time) {
	n := w.node
	if n == nil || w.unanswered != nil || n.UID != w.uid || slices.Equal(n.Status.VolumesInUse, w.written) {
		return
	}
	if w.more && !slices.ContainsFunc(w.written, func(v corev1.UniqueVolumeName) bool {
		return !slices.Contains(n.Status.VolumesInUse, v)
	}) {
		w.written = n.Status.VolumesInUse // another daemon added its volumes
		return
	}
	if o.times == 0 {
		o.first = now
	}
	o.times, o.last = o.times+1, now
	r.logger.Warn("another program replaced status.volumesInUse of the Node; writing it again", "node", n.Name,
		"found", len(n.Status.VolumesInUse), "want", len(w.written), "times", o.times)
	w.written = n.Status.VolumesInUse
	r.Event(Event{
		About:   corev1.ObjectReference{Kind: "Node", Name: n.Name, UID: n.UID, APIVersion: "v1"},
		Warning: true, Reason: "VolumesInUseOverwritten", Text: o.text(n.Name),
	})
}

// After overwrittenOften replacements by another program the reporter waits
// overwrittenPause between writes, so that the two do not overload the server.
const (
	overwrittenOften = 3
	overwrittenPause = time.Second
)

// pause returns how long the next write must wait.
func (o *overwritten) pause(now time.Time) time.Duration {
	if o.times <= overwrittenOften {
		return 0
	}
	return o.rewritten.Add(overwrittenPause).Sub(now)
}

// paced is the error of a write that must wait; its value is how long.
type paced time.Duration

func (p paced) Error() string {
	return "write status.volumesInUse: another program keeps replacing it; csi-volmgr writes it once a second"
}

func (o *overwritten) text(node string) string {
	return fmt.Sprintf("another program replaced status.volumesInUse of Node %s %d times since %s: a controller may "+
		"detach a volume while it is mounted. Stop the other program, or make it leave this field alone; csi-volmgr writes "+
		"the field again each time", node, o.times, o.first.UTC().Format(time.RFC3339))
}

// showOverwritten shows the problem for overwrittenShown, and returns the time that is left.
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
