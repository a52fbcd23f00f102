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

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// runInUse keeps status.volumesInUse true, and tells the manager what both lists say.
func (r *Reporter) runInUse(ctx context.Context) {
	var w inUse
	var o overwritten
	var b outage.Backoff
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
				retry, used = timer.C, nil // what another program writes of the Node is looked at meanwhile
			} else if err != nil {
				wait := b.Next(err)
				if p, ok := errors.AsType[paced](err); ok {
					wait, b = time.Duration(p), outage.Backoff{}
				}
				r.problem("status.volumesInUse", err, wait)
				timer.Reset(wait)
				retry = timer.C
				// Until then no change is looked at: it could not be written either.
				used, changed = nil, nil
			} else {
				b = outage.Backoff{}
				r.problem("status.volumesInUse", nil, 0)
				if wait := r.showOverwritten(&o, time.Now()); wait > 0 {
					timer.Reset(wait)
					retry = timer.C
				}
			}
		}
		select {
		case <-used:
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// inUse is what runInUse knows of the Node's two lists.
type inUse struct {
	// node is the newest Node that was seen, by the watch or as an answer; nil while
	// there is none.
	node *corev1.Node
	// unanswered is a list that was sent and has no answer: the server may apply it
	// at any time yet, or have applied it. It is sent again until there is one.
	unanswered *[]corev1.UniqueVolumeName
	// written is the list as the last answer has it, or another program's that was
	// noticed since; uid is that of its Node.
	written []corev1.UniqueVolumeName
	uid     types.UID
	// marked is what the manager got last, sorted.
	marked []state.VolumeID
	// sent is when a list was sent last.
	sent time.Time
	// more: others may be in use that the manager does not know. None leaves the list.
	more bool
}

// see takes in a Node that the watch told. The watch may be behind an answer: of one
// Node the newer version holds.
func (w *inUse) see(n *corev1.Node) {
	if n != nil && w.node != nil && n.UID == w.node.UID && older(n, w.node) {
		return
	}
	w.node = n
}

// older reports whether a is a version before b. Versions that are no numbers, which
// no API server of Kubernetes has, are taken to come in order.
func older(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// step is what comes next.
type step struct {
	// mark is what the manager may make something of, and settle that it is to take
	// that in before anything else happens.
	mark   []state.VolumeID
	settle bool
	// write says that list is to be written.
	write bool
	list  []corev1.UniqueVolumeName
}

// next decides what comes next where these volumes are in use.
func (w *inUse) next(used []state.InUse) step {
	s := w.wanted(used)
	if slices.ContainsFunc(w.marked,
		func(id state.VolumeID) bool { _, kept := slices.BinarySearch(s.mark, id); return !kept }) {
		// What is to leave the list must not come back into use while it is written.
		return step{mark: s.mark, settle: true}
	}
	return s
}

// wanted is what comes next as soon as the manager has settled.
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
	return step{mark: w.attached(used)}
}

// answered takes in the Node that answered a write.
func (w *inUse) answered(n *corev1.Node) {
	w.node, w.uid, w.written, w.unanswered = n, n.UID, n.Status.VolumesInUse, nil
}

// reportInUse writes the list where the Node has another, and tells the manager which
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
			if wait := o.pause(time.Now()); wait > 0 {
				return paced(wait)
			}
			if wait := w.pause(len(s.list), time.Now()); wait > 0 && o.times == 0 {
				return gathering(wait)
			}
			if err := r.writeInUse(ctx, w, s.list); err != nil {
				return err
			}
			if slices.Equal(w.node.Status.VolumesInUse, s.list) {
				o.rewritten = time.Now()
			}
		}
	}
}

// Each write has the whole list, and is told to all that watch Nodes. So where the list
// is long the next one waits, longer the longer it is, and says of more volumes at once.
const (
	longList    = 64
	pausePerOne = 500 * time.Microsecond
	longPause   = time.Second
)

// pause is how long a write of a list of so many has to wait.
func (w *inUse) pause(volumes int, now time.Time) time.Duration {
	if volumes < longList {
		return 0
	}
	return w.sent.Add(min(longPause, time.Duration(volumes)*pausePerOne)).Sub(now)
}

// gathering is the error of a write that waits for others to come, and how long.
type gathering time.Duration

func (gathering) Error() string {
	return "write status.volumesInUse: the list is long, and was written a moment ago"
}

// writeInUse replaces the Node's list, if the Node is the newest yet.
func (r *Reporter) writeInUse(ctx context.Context, w *inUse, list []corev1.UniqueVolumeName) error {
	w.unanswered, w.sent = &list, time.Now()
	meta := map[string]any{"resourceVersion": w.node.ResourceVersion}
	if w.node.UID != w.uid {
		// The first write must change the Node: the version that it leaves behind is
		// what an earlier process's write, which may be under way yet, asks for.
		meta["annotations"] = map[string]string{WriterAnnotation: r.writer}
	}
	n, err := r.patchInUse(ctx, map[string]any{"metadata": meta, "status": map[string]any{"volumesInUse": list}})
	switch {
	case apierrors.IsConflict(err):
		// An empty patch reads what the server has, with the right that the reporter
		// has anyway. No write of an earlier version is applied any more.
		if n, err = r.patchInUse(ctx, map[string]any{}); err != nil {
			return err
		}
		w.node, w.unanswered = n, nil
		return nil
	case err != nil:
		return err
	}
	w.answered(n)
	if !slices.Equal(n.Status.VolumesInUse, list) {
		return errors.New("write status.volumesInUse: the API server took the list and answered with another; " +
			"look for an admission webhook that changes status.volumesInUse of Nodes")
	}
	return nil
}

// list is what the Node's list has to be.
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

// names returns the volumes' names as the attach-detach controller has them, each
// once: pods that name one disk inline have a volume each.
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

// listed returns those of the volumes that the Node has in use.
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

// attached returns those of the volumes that the Node has attached.
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

// patchInUse changes the Node's status, and returns the Node as it is then.
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

// intersection returns those of ids that are used; both are sorted.
func intersection(ids []state.VolumeID, used []state.InUse) (both []state.VolumeID) {
	for _, u := range used {
		if _, there := slices.BinarySearch(ids, u.ID); there {
			both = append(both, u.ID)
		}
	}
	return both
}
