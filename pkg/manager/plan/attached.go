package plan

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// reasonListed is why a volume waits that the Node does not have in both lists.
const reasonListed = "waiting for the Node's status to list the volume in volumesInUse and in volumesAttached"

// AttachedAs is the name under which a controller of the cluster knows a volume that is
// wanted here, or that may have anything here; "" where none attaches it. While it is
// in use the record decides: what was begun as attached is attached until it is unstaged,
// whatever its CSIDriver says by then.
func AttachedAs(w state.Want, v state.Volume) string {
	if v.InUse() {
		if name := v.Spec.AttachedAs(v.ID); name != "" {
			return name
		}
	}
	return w.Spec.AttachedAs(v.ID)
}

// UntilListed holds the wish for a volume that a controller of the cluster attaches,
// unless the Node has it in both lists.
func UntilListed(w state.Want, id state.VolumeID, listed bool) state.Want {
	if w.Hold == "" && len(w.Pods) > 0 && !listed && w.Spec.AttachedAs(id) != "" {
		w.Hold = reasonListed
	}
	return w
}

// Unattachable says why the volume may not be begun with a driver that needs it
// attached and does not attach it here: it would be staged or published with an empty
// publish_context. "" where nothing is in the way, and while the driver is not up,
// since its abilities are not known then.
func Unattachable(w state.Want, up, attaches bool) string {
	if !up || attaches {
		return ""
	}
	return w.Unattached
}
