package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// runInUse keeps status.volumesInUse up to date, and tells the manager which volumes are
// in both volumesInUse and volumesAttached.
func (r *Reporter) runInUse(ctx context.Context) {
	var w inUse
	var o overwritten
	var b outage.Backoff
	check := time.NewTimer(outage.Jitter(checkEvery, 0.2))
	defer check.Stop()
	for ctx.Err() == nil {
		used := r.config.Volumes.Changed()
		v, changed := r.view(true)
		var retry <-chan time.Time
		timer := time.NewTimer(0)
		timer.Stop()
		if r.config.Volumes.ReconcilerStatesHasBeenSynced() {
			err := r.reportInUse(ctx, v, &w, &o)
			if later, ok := errors.AsType[gathering](err); ok {
				timer.Reset(time.Duration(later))
				retry, used = timer.C, nil // changes of the Node still wake the loop
			} else if err != nil {
				wait := b.Next(err)
				if p, ok := errors.AsType[paced](err); ok {
					wait, b = time.Duration(p), outage.Backoff{} // w.again is for failures: a pace depends on the write
				} else {
					w.again = time.Now().Add(wait)
				}
				r.problem("status.volumesInUse", err, wait)
				timer.Reset(wait)
				// Changes of the Node still wake the loop: they may end what the manager may use.
				retry, used = timer.C, nil
			} else {
				b, w.again = outage.Backoff{}, time.Time{}
				r.problem("status.volumesInUse", nil, 0)
				if wait := r.showLists(&w, &o, time.Now()); wait > 0 {
					timer.Reset(wait)
					retry = timer.C
				}
			}
		}
		select {
		case <-used:
		case <-changed:
		case <-retry:
		case <-check.C:
			r.readNode(ctx, &w)
			check.Reset(outage.Jitter(checkEvery, 0.2))
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// inUse is the state of runInUse about the Node's two lists.
type inUse struct {
	// node is the newest Node from the watch or an answer; nil while there is none.
	node *corev1.Node
	// watched is the Node that the watch showed last.
	watched *corev1.Node
	// unanswered is a list that was sent and not answered: the server may have applied it
	// or still apply it. It is sent again until the server answers.
	unanswered *[]corev1.UniqueVolumeName
	// written is the list in the last answer, or a replacement by another program that was
	// noticed since. uid is the UID of its Node.
	written []corev1.UniqueVolumeName
	uid     types.UID
	// marked has the volumes that the manager was last told it may use, sorted.
	marked []state.VolumeID
	// sent is when a list was last sent, and again the earliest time of the next attempt after a failure.
	sent, again time.Time
	// missing has the mounted volumes that volumesAttached lacks, and since when.
	missing map[string]time.Time
	// told has those of them that an event was written about.
	told map[string]bool
	// more is set if volumes that the manager does not know may be in use. Then no volume
	// is removed from the list.
	more bool
}

// see sets a Node from the watch, unless it was seen before or an answer already had a newer version
// of it. What a watch showed before etcd was put back to an earlier copy has a higher version than
// all that follows.
func (w *inUse) see(n *corev1.Node) {
	if n != nil && w.watched != nil && w.node != nil && same(n, w.watched) {
		return
	}
	w.watched = n
	if n != nil && w.node != nil && n.UID == w.node.UID && older(n, w.node) {
		return
	}
	w.node = n
}

// ahead reports whether node is from an answer and the watch has not shown it yet. Then the
// attachments that are known may be those from before it.
func (w *inUse) ahead() bool {
	return w.watched == nil || !same(w.watched, w.node)
}

// same reports whether a and b are one version of one object.
func same(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// older reports whether version a is before version b. It returns false for versions
// that are not numbers, which no API server of Kubernetes has.
func older(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// step is the next step of reportInUse.
type step struct {
	// mark has the volumes that the manager may use. If settle is set, the manager must
	// confirm that before anything else happens.
	mark   []state.VolumeID
	settle bool
	// write says that list must be written.
	write bool
	list  []corev1.UniqueVolumeName
}

// next returns the next step if the volumes in used are in use.
func (w *inUse) next(used []state.InUse) step {
	s := w.wanted(used)
	if slices.ContainsFunc(w.marked,
		func(id state.VolumeID) bool { _, kept := slices.BinarySearch(s.mark, id); return !kept }) {
		// A volume that leaves the list must not come back into use while the list is written.
		return step{mark: s.mark, settle: true}
	}
	return s
}

// wanted returns the next step once the manager has confirmed the marks.
func (w *inUse) wanted(used []state.InUse) step {
	switch {
	case w.node == nil:
		return step{}
	case w.unanswered != nil:
		return step{mark: intersection(w.marked, w.listed(used)), write: true, list: *w.unanswered}
	case w.node.UID != w.uid && len(used) == 0 && len(w.node.Status.VolumesInUse) == 0:
		return step{}
	case w.node.UID != w.uid || !slices.Equal(w.node.Status.VolumesInUse, w.list(used)):
		return step{mark: intersection(w.marked, w.listed(used)), write: true, list: w.list(used)}
	}
	mark := w.attached(used)
	if w.ahead() { // a volume that left volumesAttached and came back has another attachment
		mark = common(w.marked, mark)
	}
	return step{mark: mark}
}

// answered records the Node in the answer to a write.
func (w *inUse) answered(n *corev1.Node) {
	w.node, w.uid, w.written, w.unanswered = n, n.UID, n.Status.VolumesInUse, nil
}

// reportInUse writes the list if the Node has another, and tells the manager which
// volumes the Node has in both lists.
func (r *Reporter) reportInUse(ctx context.Context, v view, w *inUse, o *overwritten) error {
	w.see(v.node)
	for {
		r.notice(w, o, time.Now())
		used, all := r.config.Volumes.AttachedInUse()
		w.more = !all || v.rival
		s := w.next(used)
		if !slices.Equal(w.marked, s.mark) {
			r.config.Volumes.MarkVolumesAsReportedInUse(s.mark)
			w.marked = s.mark
		}
		switch {
		case s.settle:
			if err := r.config.Volumes.Settle(ctx); err != nil {
				return err
			}
		case !s.write:
			return nil
		default:
			if wait := time.Until(w.again); wait > 0 {
				return gathering(wait)
			}
			if wait := o.pause(time.Now(), w.lacks(r.mounted(used))); wait > 0 {
				return paced(wait)
			}
			if wait := w.pause(len(s.list), time.Now()); wait > 0 && o.times == 0 {
				return gathering(wait)
			}
			if err := r.writeInUse(ctx, w, s.list); err != nil {
				return err
			}
			if slices.Equal(w.node.Status.VolumesInUse, s.list) {
				o.wrote(time.Now())
			}
		}
	}
}

// Each write sends the whole list, and the API server sends it to every watcher of Nodes.
// So if the list is long, the next write waits, in proportion to its length, and covers
// more changes at once.
const (
	longList    = 64
	pausePerOne = 500 * time.Microsecond
	longPause   = time.Second
)

// pause returns how long the write of a list with this many volumes must wait.
func (w *inUse) pause(volumes int, now time.Time) time.Duration {
	if volumes < longList {
		return 0
	}
	return w.sent.Add(min(longPause, time.Duration(volumes)*pausePerOne)).Sub(now)
}

// gathering is the error of a write that waits for more changes, or for the end of the pause after
// a failure; its value is how long.
type gathering time.Duration

func (gathering) Error() string {
	return "write status.volumesInUse: the list is long and was written a moment ago, or the last write failed"
}

// writeInUse replaces the Node's list if w.node is still its newest version.
func (r *Reporter) writeInUse(ctx context.Context, w *inUse, list []corev1.UniqueVolumeName) error {
	w.unanswered, w.sent = &list, time.Now()
	meta := map[string]any{"resourceVersion": w.node.ResourceVersion}
	if w.node.UID != w.uid {
		// The first write must change the Node's version. A delayed write of an earlier
		// process carries the old version and then fails.
		meta["annotations"] = map[string]string{WriterAnnotation: r.writer}
	}
	n, err := r.patchInUse(ctx, map[string]any{"metadata": meta, "status": map[string]any{"volumesInUse": list}})
	switch {
	case apierrors.IsConflict(err):
		// An empty patch reads the current Node with a permission that the reporter already
		// has. Writes with an earlier version can no longer be applied.
		if n, err = r.patchInUse(ctx, map[string]any{}); err != nil {
			return err
		}
		w.node, w.unanswered = n, nil
		if slices.Equal(n.Status.VolumesInUse, list) {
			w.written = list // an earlier attempt whose answer was lost
		}
		return nil
	case err != nil:
		return err
	}
	w.answered(n)
	if !slices.Equal(n.Status.VolumesInUse, list) {
		return errors.New("write status.volumesInUse: the API server accepted the list but answered with another; " +
			"look for an admission webhook that changes status.volumesInUse of Nodes")
	}
	return nil
}

// checkEvery is how often the reporter reads the Node without an event: a watch shows nothing of a Node that was put
// back with etcd, and a wrong list lets a controller detach what is mounted. Each pause is randomly extended by up to a
// fifth.
const checkEvery = 30 * time.Second

// readNode reads the Node, as the watch of it does, if this process has written a list into it. The
// answer is newer than all that is known, whatever its version. An error is that of an outage, which
// others report.
func (r *Reporter) readNode(ctx context.Context, w *inUse) {
	if w.node == nil || w.unanswered != nil || w.node.UID != w.uid || len(w.written) == 0 {
		return
	}
	if n, err := r.currentNode(ctx); err == nil && n.UID == w.uid {
		w.node = n
	}
}

// list returns what the Node's list must be.
func (w *inUse) list(used []state.InUse) []corev1.UniqueVolumeName {
	list := names(used)
	if !w.more {
		return list
	}
	both := slices.Clone(w.node.Status.VolumesInUse)
	for _, name := range list {
		if !slices.Contains(both, name) {
			both = append(both, name)
		}
	}
	return both
}

// names returns the attach-detach controller's names of the volumes without duplicates:
// pods that name the same disk inline have separate volumes.
func names(used []state.InUse) []corev1.UniqueVolumeName {
	var list []corev1.UniqueVolumeName
	there := map[string]bool{}
	for _, u := range used {
		if !there[u.Name] {
			list = append(list, corev1.UniqueVolumeName(u.Name))
		}
		there[u.Name] = true
	}
	return list
}

// listed returns the volumes that are in the Node's status.volumesInUse.
func (w *inUse) listed(used []state.InUse) (both []state.InUse) {
	there := map[corev1.UniqueVolumeName]bool{}
	for _, name := range w.node.Status.VolumesInUse {
		there[name] = true
	}
	for _, u := range used {
		if there[corev1.UniqueVolumeName(u.Name)] {
			both = append(both, u)
		}
	}
	return both
}

// attached returns the ids of the volumes that are in the Node's status.volumesAttached.
func (w *inUse) attached(used []state.InUse) (ids []state.VolumeID) {
	there := map[corev1.UniqueVolumeName]bool{}
	for _, v := range w.node.Status.VolumesAttached {
		there[v.Name] = true
	}
	for _, u := range used {
		if there[corev1.UniqueVolumeName(u.Name)] {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// patchInUse patches the Node's status and returns the new Node.
func (r *Reporter) patchInUse(ctx context.Context, change map[string]any) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	// A merge patch replaces the list as a whole.
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("write status.volumesInUse: %w", err)
	}
	n, err := r.config.Core.Nodes().Patch(ctx, r.config.NodeName, types.MergePatchType, patch, "status")
	if err != nil {
		return nil, fmt.Errorf("write status.volumesInUse: %w", err)
	}
	return n, nil
}

// common returns the ids that are in both lists, which are sorted.
func common(a, b []state.VolumeID) (both []state.VolumeID) {
	for _, id := range b {
		if _, there := slices.BinarySearch(a, id); there {
			both = append(both, id)
		}
	}
	return both
}

// intersection returns the ids that are also in used. Both are sorted.
func intersection(ids []state.VolumeID, used []state.InUse) (both []state.VolumeID) {
	for _, u := range used {
		if _, there := slices.BinarySearch(ids, u.ID); there {
			both = append(both, u.ID)
		}
	}
	return both
}
