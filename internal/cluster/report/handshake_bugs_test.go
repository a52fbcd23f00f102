package report

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// bug is one broken rule of the handshake.
type bug struct {
	name  string
	found string // the scenario in which the walk finds it
	plant func(*rules)
}

// bugs breaks one rule each; the first four were found by an audit.
func bugs() []bug {
	return append(append(found(), contexts()...), []bug{
		{"an older Node replaces a newer answer", replaced, func(r *rules) {
			r.see = func(w *inUse, n *corev1.Node) { w.node, w.watched = n, n }
		}},
		{"a write is for any version of the Node", late, func(r *rules) { r.versions = false }},
		{"a write without an answer is forgotten", late, func(r *rules) {
			r.next = func(w *inUse, used []state.InUse) step { w.unanswered = nil; return w.next(used) }
		}},
		{"the first write may change nothing", agentFails, func(r *rules) { r.claims = false }},
		{"the manager is not waited for", replaced, func(r *rules) { r.settles = false }},
		{"the manager is waited for only when a volume is used no more", replaced, func(r *rules) {
			r.next = func(w *inUse, used []state.InUse) step {
				s := w.wanted(used)
				s.settle = len(intersection(w.marked, used)) < len(w.marked)
				return s
			}
		}},
		{"what is being unmounted has left already", replaced, func(r *rules) {
			r.used = func(w state.Want, v state.Volume) string {
				if v.Mounts[podUID].Phase == state.Leaving {
					return ""
				}
				return plan.AttachedAs(w, v)
			}
		}},
		{"a list that is as it was is not asked for", agentFails, func(r *rules) {
			r.next = func(w *inUse, used []state.InUse) step {
				if w.node != nil && w.uid == "" && slices.Equal(w.node.Status.VolumesInUse, names(used)) {
					w.uid = w.node.UID
				}
				return w.next(used)
			}
		}},
	}...)
}

// contexts are the bugs by which a volume is mounted with the context of an earlier attachment.
func contexts() []bug {
	return []bug{
		{"the attachment of before is kept", replaced, func(r *rules) { r.forgets = false }},
		{"an answer from before counts", lateRead, func(r *rules) { r.discards = false }},
		{"more is marked while the watch lags", replaced, func(r *rules) {
			r.next = func(w *inUse, used []state.InUse) step { w.watched = w.node; return w.next(used) }
		}},
	}
}

// found are the bugs that an audit found in an earlier version.
func found() []bug {
	return []bug{
		{"volumesAttached is no condition", replaced, func(r *rules) {
			r.next = func(w *inUse, used []state.InUse) step {
				s := w.next(used)
				if !s.write && !s.settle && w.node != nil {
					s.mark = intersection([]state.VolumeID{volumeID}, w.listed(used))
				}
				return s
			}
		}},
		{"the list is compared before the first write only", erased, func(r *rules) {
			r.see = func(w *inUse, n *corev1.Node) {
				if n != nil && w.uid != "" {
					n.Status.VolumesInUse = w.node.Status.VolumesInUse
				}
				w.see(n)
			}
		}},
		{"the CSIDriver of today decides what is in use", flips, func(r *rules) {
			r.used = func(w state.Want, v state.Volume) string {
				if len(w.Pods) > 0 {
					return w.Spec.AttachedAs(v.ID)
				}
				return plan.AttachedAs(w, v)
			}
		}},
		{"the volume takes no part", replaced, func(r *rules) {
			r.used = func(state.Want, state.Volume) string { return "" }
			r.held = func(w state.Want, _ state.VolumeID, _ bool) state.Want { return w }
		}},
	}
}
