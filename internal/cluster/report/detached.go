package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// missingPatience is how long a mounted volume may be missing from volumesAttached before the
	// reporter says so. A controller removes a volume before it looks whether it is in use, and then
	// lists it again.
	missingPatience = 10 * time.Second
	// maxShown bounds the volumes that one text names.
	maxShown = 10
)

// showLists shows the problems of the Node's two lists, and returns when to look again; 0 means at the
// next change.
func (r *Reporter) showLists(w *inUse, o *overwritten, now time.Time) time.Duration {
	overwritten, missing := r.showOverwritten(o, now), r.showMissing(w, now)
	if overwritten > 0 && missing > 0 {
		return min(overwritten, missing)
	}
	return max(overwritten, missing)
}

// showMissing shows which mounted volumes the Node's volumesAttached lacks, and writes an event when
// there are more. It returns the time until another one must be shown, 0 if there is none.
func (r *Reporter) showMissing(w *inUse, now time.Time) (left time.Duration) {
	was := w.missing
	w.missing = map[string]time.Time{}
	var names []string
	for _, name := range r.missing(w) {
		since, known := was[name]
		if !known {
			since = now
		}
		w.missing[name] = since
		switch wait := missingPatience - now.Sub(since); {
		case wait <= 0:
			names = append(names, name)
		case left == 0 || wait < left:
			left = wait
		}
	}
	text := missingText(r.config.NodeName, names)
	r.show("status.volumesAttached", text)
	more := slices.ContainsFunc(names, func(name string) bool { return !w.told[name] })
	w.told = map[string]bool{}
	for _, name := range names {
		w.told[name] = true
	}
	if more {
		r.logger.Warn("mounted volumes are no longer attached to this node", "volumes", names)
		r.Event(Event{
			About:   corev1.ObjectReference{Kind: "Node", Name: w.node.Name, UID: w.node.UID, APIVersion: "v1"},
			Warning: true, Reason: "MountedNotAttached", Text: text,
		})
	}
	return left
}

// missing returns the names of the mounted volumes that the newest Node does not list as attached, sorted.
func (r *Reporter) missing(w *inUse) []string {
	if w.node == nil || w.node.UID != w.uid {
		return nil
	}
	used, _ := r.config.Volumes.AttachedInUse()
	names := map[string]bool{}
	for _, u := range r.mounted(used) {
		names[u.Name] = true
	}
	for _, v := range w.node.Status.VolumesAttached {
		delete(names, string(v.Name))
	}
	return slices.Sorted(maps.Keys(names))
}

func missingText(node string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	shown := strings.Join(names[:min(len(names), maxShown)], ", ")
	if more := len(names) - maxShown; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("mounted here, and status.volumesAttached of Node %s does not list them: %s. A controller may "+
		"have detached them by force (taint node.kubernetes.io/out-of-service, or after six minutes), so another node may "+
		"write to them now. Stop the pods that have them; look with: csi-volmgr get volumes", node, shown)
}
