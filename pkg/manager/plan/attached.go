package plan

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const reasonListed = "waiting for the Node's status to list the volume in volumesInUse and in volumesAttached"

// AttachedAs returns the name under which the cluster's controller attaches a volume
// that is wanted or in use here; "" if no controller attaches it. While the volume is in
// use the record decides: a volume that was begun as attached stays attached until it is
// unstaged, even if its CSIDriver changes meanwhile.
func AttachedAs(w state.Want, v state.Volume) string {
	if v.InUse() {
		if name := v.Spec.AttachedAs(v.ID); name != "" {
			return name
		}
	}
	return w.Spec.AttachedAs(v.ID)
}

// HoldUntilListed holds the wish for a volume that the cluster's controller attaches until the
// Node's status has it in both lists.
func HoldUntilListed(w state.Want, id state.VolumeID, listed bool) state.Want {
	if w.Hold == "" && len(w.Pods) > 0 && !listed && w.Spec.AttachedAs(id) != "" {
		w.Hold = reasonListed
	}
	return w
}

// AttachedAnew says, for people, that a pod uses a mount that was made with another attachment than
// the one that the cluster has now; "" if that is not so or not known. Such a mount stays, because
// containers may use it (rule 5); one that no pod uses is undone.
func AttachedAnew(w state.Want, v state.Volume) string {
	if v.Spec == nil || len(w.Pods) == 0 || w.Hold != "" || w.Spec.Attachment == "" {
		return ""
	}
	was := v.Spec.Attachment
	if was == "" && len(v.Spec.PublishContext) == 0 || !reattached(w, v) {
		return "" // it was made without one
	}
	for _, m := range v.Mounts {
		if !used(v, m) {
			continue
		}
		differ := "its UID"
		if !maps.Equal(v.Spec.PublishContext, w.Spec.PublishContext) {
			differ = "its publish context"
		}
		return fmt.Sprintf("it was mounted by VolumeAttachment UID %s, and the cluster has attached it anew since, by UID "+
			"%s (%s differs): its device may be gone or have another volume's data. Stop the pod and delete it; the volume is "+
			"staged anew for its next pod", cmp.Or(was, "unknown"), w.Spec.Attachment, differ)
	}
	return ""
}

// Unattachable says why the volume must not be begun: its driver needs it attached, and
// csi-volmgr does not attach it, so it would be staged or published with an empty
// publish_context. It returns "" if that is not so, and while the driver is down, since
// its abilities are unknown then.
func Unattachable(w state.Want, up, attaches bool) string {
	if !up || attaches {
		return ""
	}
	return w.Unattached
}

// unreached says why the part of the driver that serves a call is away. The controller is asked
// to detach a volume also while the node part is away; to attach it, the node's id is needed.
func (d DriverFacts) unreached(call Kind) reason {
	ofController := d.Controller != nil && (call == Attach || call == Detach)
	switch {
	case !d.Up && !(ofController && call == Detach):
		return reason{DriverDown, d.Why}
	case ofController && *d.Controller != "":
		return reason{AttacherDown, *d.Controller}
	}
	return reason{}
}
