package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// overwrittenShown is how long the reporter shows that another program replaced the
// list: longer than five minutes, so that a program that writes that often stays visible.
const overwrittenShown = 10 * time.Minute

// overwritten counts how often another program replaced status.volumesInUse.
type overwritten struct {
	times       int
	first, last time.Time
	// by is the program as the Node's managedFields last named it, "" if they have not.
	by string
	// rewritten is when the reporter last wrote its own list, and again the earliest time of the
	// next write that adds a mounted volume.
	rewritten, again time.Time
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
	if r.wentBack(n) {
		r.logger.Info("status.volumesInUse of the Node is an earlier one, as after etcd was put back to an earlier copy; "+
			"writing it again", "node", n.Name, "found", len(n.Status.VolumesInUse), "want", len(w.written))
		w.written = n.Status.VolumesInUse
		return
	}
	if o.times == 0 {
		o.first = now
	}
	o.times, o.last, o.by = o.times+1, now, cmp.Or(writerOf(n), o.by)
	r.logger.Warn("another program replaced status.volumesInUse of the Node; writing it again", "node", n.Name,
		"by", cmp.Or(o.by, "unknown"), "found", len(n.Status.VolumesInUse), "want", len(w.written), "times", o.times)
	w.written = n.Status.VolumesInUse
	r.Event(Event{
		About:   corev1.ObjectReference{Kind: "Node", Name: n.Name, UID: n.UID, APIVersion: "v1"},
		Warning: true, Reason: "VolumesInUseOverwritten", Text: o.text(n.Name),
	})
}

// ownManager is the field manager of csi-volmgr's writes, which the API server takes from the user agent.
const ownManager = "csi-volmgr"

// wentBack reports whether no other program wrote the Node's list: the list is one of csi-volmgr's own, or the Node is
// from before this process wrote its annotation.
func (r *Reporter) wentBack(n *corev1.Node) bool {
	return writerOf(n) == ownManager || n.Annotations[WriterAnnotation] != r.writer
}

// writerOf returns the field manager that owns the Node's status.volumesInUse; "" if none does, as after
// the field was removed.
func writerOf(n *corev1.Node) (manager string) {
	var latest time.Time
	for _, m := range n.ManagedFields {
		var fields struct {
			Status map[string]json.RawMessage `json:"f:status"`
		}
		if m.FieldsV1 == nil || m.Time == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, owns := fields.Status["f:volumesInUse"]; owns && !m.Time.Time.Before(latest) {
			manager, latest = m.Manager, m.Time.Time
		}
	}
	return manager
}

// After overwrittenOften replacements by another program the reporter waits between writes, so that
// the two do not overload the server: overwrittenPause, or addPause and up to as much more if the write
// adds a mounted volume. Without that one, a controller may detach what is mounted at any moment.
const (
	overwrittenOften = 3
	overwrittenPause = time.Second
	addPause         = 100 * time.Millisecond
)

// pause returns how long the next write must wait. adds says that it adds a mounted volume.
func (o *overwritten) pause(now time.Time, adds bool) time.Duration {
	switch {
	case o.times <= overwrittenOften:
		return 0
	case adds:
		return o.again.Sub(now)
	}
	return o.rewritten.Add(overwrittenPause).Sub(now)
}

// wrote notes that the reporter has written its list.
func (o *overwritten) wrote(now time.Time) {
	o.rewritten, o.again = now, now.Add(outage.Jitter(addPause, 1))
}

// mounted returns those of used that may be mounted.
func (r *Reporter) mounted(used []state.InUse) []state.InUse {
	if r.config.Mounted == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(used), func(u state.InUse) bool { return !r.config.Mounted(u.ID) })
}

// lacks reports whether the Node's list lacks one of the volumes.
func (w *inUse) lacks(mounted []state.InUse) bool { return len(w.listed(mounted)) < len(mounted) }

// paced is the error of a write that must wait; its value is how long.
type paced time.Duration

func (p paced) Error() string {
	return "write status.volumesInUse: another program keeps replacing it; csi-volmgr writes a mounted volume into it " +
		"again at once, ten times a second at most, and other changes once a second"
}

func (o *overwritten) text(node string) string {
	by := ""
	if o.by != "" {
		by = " (" + o.by + " in managedFields)"
	}
	return fmt.Sprintf("another program%s replaced status.volumesInUse of Node %s %d times since %s: a controller may "+
		"detach a volume while it is mounted. Stop the other program, or make it leave this field alone; csi-volmgr writes "+
		"the field again each time, which may be too late", by, node, o.times, o.first.UTC().Format(time.RFC3339))
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
