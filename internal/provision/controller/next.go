package controller

import (
	"cmp"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// verb is the kind of a step for a claim.
type verb uint8

const (
	noVerb verb = iota
	// Steps that are calls to the driver.
	createVolume
	deleteVolume
	expandVolume
	attachVolume
	detachVolume
	modifyVolume
	// Steps without a call.
	acceptSize // take the wanted size as the capacity: this driver's volumes are expanded only by nodes
	dropClaim  // remove the record, which describes nothing that exists
)

var verbNames = [...]string{
	"", "CreateVolume", "DeleteVolume", "ControllerExpandVolume",
	"ControllerPublishVolume", "ControllerUnpublishVolume", "ControllerModifyVolume", "settle", "forget",
}

func (v verb) String() string { return verbNames[v] }

// calls reports whether the verb is a call to the driver.
func (v verb) calls() bool { return v != noVerb && v < acceptSize }

// limited reports whether the verb counts against the limit of a driver's calls. Removals do not,
// nor do calls for existing volumes that a pod waits for.
func (v verb) limited() bool { return v == createVolume || v == expandVolume || v == modifyVolume }

// op is one step for a claim.
type op struct {
	verb verb
	// spec is what createVolume asks for. again means that an earlier call of createVolume with the same spec, or of
	// expandVolume, may have had its effect.
	spec  spec
	again bool
	// bytes is the new size for expandVolume and acceptSize.
	bytes int64
	// limit is the largest size that expandVolume allows; 0 means any.
	limit int64
	// attributes are the new attributes for modifyVolume.
	attributes Attributes
	// from is the volume's phase before the step.
	from state.Phase
}

// held says why there is no step. The zero value means that everything is as wanted.
type held struct {
	reason string
	until  time.Time // zero: only an event helps
	// slot means that it waits until one of the driver's calls in flight ends.
	slot bool
	// refused means that only a change of the claim, its class or its driver helps.
	refused bool
	// cause is the reason for programs.
	cause state.Cause
}

// on returns h with the cause that code says of an object.
func (h held) on(code state.CauseCode, of string) held {
	h.cause = state.Cause{Code: code, Of: of}
	return h
}

// waits reports whether h says why there is no step.
func (h held) waits() bool { return h.reason != "" }

func heldf(format string, args ...any) held { return held{reason: fmt.Sprintf(format, args...)} }

func refusedf(format string, args ...any) held {
	return held{reason: fmt.Sprintf(format, args...), refused: true}
}

// want is the wanted state of a claim.
type want struct {
	// Claim is what a source lists, if Listed is true.
	Claim  Claim
	Listed bool
	// Attach is attachVolume or detachVolume if the manager asked for it, else noVerb.
	Attach verb
}

// facts is what a decision about one claim depends on in addition to its record.
type facts struct {
	Driver driverFacts
	// InUse says who on this node uses the volume, or is "".
	InUse string
	// Source is the volume to clone, or the snapshot to make the volume from.
	Source sourceFacts
	// Cloning is the claim that is being made as a clone of this claim's volume, and what it waits
	// for; or "".
	Cloning string
	// Snapshotting says which snapshot may still need this claim's volume, or is "".
	Snapshotting string
	// Doubt means that the record's deletion was read from a journal that may have lost newer records.
	Doubt bool
	// Namesake is another claim whose volume has the name that this claim's volume would get, or
	// "".
	Namesake string
}

type driverFacts struct {
	// Problem says why the driver cannot be called, or is "". Cause is the same for programs.
	Problem string
	Cause   state.Cause
	// Asking means that the driver is being asked for its capabilities.
	Asking bool
	// Full means that the driver has its maximum of calls in flight.
	Full     bool
	Topology map[string]string
	// NodeUnknown says why Topology, and EXPAND_VOLUME of the Node service, are not known yet; "" if they are.
	NodeUnknown string
	caps        caps
}

// away reports whether the driver cannot be called; Problem says why.
func (d driverFacts) away() bool { return d.Problem != "" }

// held says that the driver is away.
func (d driverFacts) held() held { return held{reason: d.Problem, cause: d.Cause} }

// heldForNode says that what the Node service answers is needed.
func (d driverFacts) heldForNode(name state.DriverName) held {
	return held{reason: d.NodeUnknown}.on(state.DriverAway, string(name))
}

type sourceFacts struct {
	Handle  string
	Problem string
}

// caps are the capabilities of a driver.
type caps struct {
	// Capabilities of the plugin: Controller is CONTROLLER_SERVICE, Topology is
	// VOLUME_ACCESSIBILITY_CONSTRAINTS, Online and Offline are VolumeExpansion.
	Controller, Topology, Online, Offline bool
	// Capabilities of the Controller service.
	Create, Expand, Clone, Snapshot, ListVolumes, ListSnapshots, Capacity, Modify, MultiWriter, Health bool
	// Group is CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT of the GroupController service.
	Group bool
	// NodeExpand is EXPAND_VOLUME of the Node service.
	NodeExpand bool
	// Blocks is SNAPSHOT_METADATA_SERVICE of the plugin.
	Blocks bool
}

// next returns the next step for a claim, or why there is none.
func next(r record, w want, f facts, now time.Time) (op, held) {
	switch {
	case f.Doubt && (r.Delete || r.Volume.Phase == state.Leaving) && w.Attach != detachVolume:
		return op{}, doubted("pvc", r.Claim)
	case r.Volume.Phase == state.Leaving && f.InUse != "":
		// An older journal may say so of a volume that was deleted and made again since.
		return op{}, heldf("volume %s is in use by %s", r.Name, f.InUse).on(state.HasPod, f.InUse)
	case r.Volume.Phase == state.Leaving:
		return nextDeleteVolume(r, f, now)
	case r.Delete:
		return nextDeletion(r, w, f, now)
	case r.Volume.Phase == state.Present:
		return nextPresent(r, w, f, now)
	case !w.Listed && r.Volume.Phase == state.Entering:
		return op{}, heldf("it was removed while its volume %s was being made, which may exist; list it again, or delete it",
			r.Name).on(state.Halfway, "")
	case !w.Listed && !r.empty():
		return op{verb: dropClaim}, held{}
	case !w.Listed:
		return op{}, held{}
	default:
		return nextCreate(r, w, f, now)
	}
}

// nextCreate creates the volume.
func nextCreate(r record, w want, f facts, now time.Time) (op, held) {
	c := w.Claim
	o := op{verb: createVolume, from: r.Volume.Phase}
	switch {
	case c.Class.Provisioner == "":
		return op{}, heldf("StorageClass %q not found; to bind a PersistentVolume that exists, name it in the claim's "+
			"spec.volumeName", c.Class.Name).on(state.NoClass, c.Class.Name)
	case r.Volume.Phase == state.Entering && c.Class.Provisioner != r.Spec.Driver:
		return op{}, heldf("its class names driver %s, but its volume %s may exist at driver %s; delete the claim first",
			c.Class.Provisioner, r.Name, r.Spec.Driver).on(state.Halfway, "")
	case r.Volume.Phase == state.Absent && f.Namesake != "":
		return op{}, heldf("the volume name %s belongs to claim %s; two claims cannot have the same UID", c.volumeName(),
			f.Namesake).on(state.BadClaim, "")
	case r.Volume.Phase == state.Absent && c.Refused != "":
		return op{}, refusedf("%s", c.Refused).on(state.BadClaim, "")
	case c.Source.denied(r) != "":
		return op{}, refusedf("%s", c.Source.denied(r)).on(state.BadClaim, "")
	case r.Volume.Phase == state.Absent && c.naming.missing != "":
		return op{}, held{reason: c.naming.missing}.on(state.NoStorageID, "")
	case f.Driver.away():
		return op{}, f.Driver.held()
	case !f.Driver.caps.Create:
		return op{}, heldf("driver %s cannot create volumes (it has no CREATE_DELETE_VOLUME)",
			c.Class.Provisioner).on(state.DriverUnable, string(c.Class.Provisioner))
	}
	if f.Driver.caps.Topology && f.Driver.NodeUnknown != "" {
		return op{}, f.Driver.heldForNode(c.Class.Provisioner)
	}
	sourceGoes := r.Volume.Phase == state.Entering && r.Spec.Source != (source{}) && f.Source.Problem != ""
	if r.Unanswered || sourceGoes { // the volume may exist: ask for the same one again
		o.spec, o.again = r.Spec, true
	} else {
		var h held
		if o.spec, h = newSpec(c, f); h.waits() {
			return op{}, h
		}
	}
	return o.ifDue(r.Volume.Retry(), f, now)
}

// nextDeletion deletes the volume because a person asked for it.
func nextDeletion(r record, w want, f facts, now time.Time) (op, held) {
	switch {
	case r.Volume.Phase == state.Absent:
		return op{verb: dropClaim}, held{}
	case w.Attach == detachVolume:
		return op{verb: detachVolume, from: r.Volume.Phase}, held{}
	case r.Attach != state.Absent:
		return op{}, heldf("volume %s is attached to this node", r.Name)
	case f.InUse != "":
		return op{}, heldf("volume %s is in use by %s", r.Name, f.InUse).on(state.HasPod, f.InUse)
	case f.Cloning != "":
		return op{}, heldf("volume %s is being cloned for claim %s", r.Name, f.Cloning)
	case f.Snapshotting != "":
		return op{}, held{reason: f.Snapshotting}
	case r.Volume.Phase == state.Present:
		return nextDeleteVolume(r, f, now)
	case f.Driver.away():
		return op{}, f.Driver.held()
	}
	// The volume may exist, and only CreateVolume returns its handle.
	o := op{verb: createVolume, from: r.Volume.Phase, spec: r.Spec}
	return o.ifDue(r.Volume.Retry(), f, now)
}

// nextDeleteVolume repeats the DeleteVolume call until it has a definite answer.
func nextDeleteVolume(r record, f facts, now time.Time) (op, held) {
	switch {
	case f.Driver.away():
		return op{}, f.Driver.held()
	case !f.Driver.caps.Create:
		return op{}, heldf("driver %s cannot delete volumes (it has no CREATE_DELETE_VOLUME)",
			r.Spec.Driver).on(state.DriverUnable, string(r.Spec.Driver))
	}
	return op{verb: deleteVolume, from: r.Volume.Phase}.ifDue(r.Volume.Retry(), f, now)
}

// nextPresent attaches, detaches, expands or modifies an existing volume.
func nextPresent(r record, w want, f facts, now time.Time) (op, held) {
	o, h := nextExpand(r, w, f, now)
	if o.verb == noVerb { // expansion and modification do not wait for each other
		if m, why := nextModify(r, w, f, now); m.verb != noVerb || !h.waits() {
			o, h = m, why
		}
	}
	node := op{verb: w.Attach, from: r.Volume.Phase}
	switch {
	case w.Attach == detachVolume:
		return node, held{}
	case w.Attach == attachVolume && o.verb == expandVolume && offlineOnly(f.Driver.caps):
		// It could not be expanded while attached. If the call fails, it backs off, and the pod
		// goes first.
		return o, h
	case w.Attach == attachVolume:
		return node, held{}
	case w.Listed && !h.waits() && o.verb == noVerb:
		why := cmp.Or(r.incompatible(w.Claim), w.Claim.Refused)
		return op{}, held{reason: why, refused: why != ""}.on(state.BadClaim, "")
	}
	return o, h
}

// attachRefused reports whether an attach or detach that the manager asked for is not made now, and
// why. why is "" if there is nothing to do.
func attachRefused(r record, node verb, f facts) (refused bool, why string) {
	switch {
	case node == detachVolume && !r.exists():
		return true, ""
	case node == attachVolume && !r.usable():
		return true, fmt.Sprintf("volume %s is being deleted", r.Name)
	case f.Driver.Asking:
		return false, ""
	case !f.Driver.away() && f.Driver.NodeUnknown != "" && (node == attachVolume || r.NodeID == ""):
		return true, f.Driver.NodeUnknown
	}
	return f.Driver.away(), f.Driver.Problem
}

// nextExpand makes the volume as large as the claim asks for.
func nextExpand(r record, w want, f facts, now time.Time) (op, held) {
	c := w.Claim
	if !w.Listed {
		return op{}, held{}
	}
	bytes := max(c.SizeBytes, r.CapacityBytes)
	if r.Growing == 0 {
		switch {
		case c.SizeBytes < r.RequestedBytes:
			return op{}, refusedf("it asks for %d bytes, but its volume was made for %d: a volume cannot shrink", c.SizeBytes,
				r.RequestedBytes).on(state.BadClaim, "")
		case c.SizeBytes <= r.CapacityBytes:
			return op{}, held{}
		case c.LimitBytes > 0 && c.LimitBytes < c.SizeBytes:
			return op{}, refusedf("its limit of %d bytes is below the %d that it asks for", c.LimitBytes,
				c.SizeBytes).on(state.BadClaim, "")
		case !c.Class.AllowExpansion:
			return op{}, refusedf("its class %q does not allow expansion", c.Class.Name).on(state.BadClass, c.Class.Name)
		}
	}
	caps := f.Driver.caps
	switch {
	case f.Driver.away():
		return op{}, f.Driver.held()
	case !caps.Expand && f.Driver.NodeUnknown != "":
		return op{}, f.Driver.heldForNode(r.Spec.Driver)
	case !caps.Expand && caps.NodeExpand:
		return op{verb: acceptSize, bytes: bytes}, held{}
	case !caps.Expand:
		return op{}, refusedf("driver %s cannot expand volumes (it has no EXPAND_VOLUME)",
			r.Spec.Driver).on(state.DriverUnable, string(r.Spec.Driver))
	case offlineOnly(caps) && r.Attach != state.Absent:
		return op{}, heldf("driver %s expands volumes only while they are detached, and this one is attached", r.Spec.Driver)
	case offlineOnly(caps) && f.InUse != "":
		return op{}, heldf("driver %s expands volumes only while they are not in use; this one is in use by %s",
			r.Spec.Driver, f.InUse).on(state.HasPod, f.InUse)
	}
	o := op{verb: expandVolume, bytes: bytes, limit: c.LimitBytes, from: r.Volume.Phase, again: r.Growing != 0}
	return o.ifDue(r.Expand, f, now)
}

// offlineOnly reports whether a volume can be expanded only while it is not published (CSI 1.13
// GetPluginCapabilities, VolumeExpansion).
func offlineOnly(c caps) bool { return c.Offline && !c.Online }

// ifDue returns o, or why it is not due: an earlier failure, or too many calls in flight.
func (o op) ifDue(r state.Retry, f facts, now time.Time) (op, held) {
	switch h := paused(r, "the driver, the claim or its class", now); {
	case h.waits():
		return op{}, h
	case o.verb.limited() && f.Driver.Full:
		return op{}, waitForSlot()
	}
	return o, held{}
}

// paused says why the next call is not due, or returns the zero value if it is. A call with a final
// failure is repeated only when one of what changes.
func paused(r state.Retry, what string, now time.Time) held {
	switch {
	case r.Final:
		return refusedf("%s; not repeated until %s changes", describe(r), what).on(state.CallFailed, "")
	case now.Before(r.NotBefore) && r.Call == "": // see [awaitReady]
		return held{reason: "the driver says that it is not ready yet", until: r.NotBefore}
	case now.Before(r.NotBefore):
		return held{reason: describe(r), until: r.NotBefore}.on(state.CallFailed, "")
	}
	return held{}
}

func waitForSlot() held {
	return held{reason: "its driver has its maximum of calls in flight", slot: true}
}

func describe(r state.Retry) string {
	if r.Code == "" {
		return fmt.Sprintf("%s: %s", r.Call, r.Error)
	}
	return fmt.Sprintf("%s: %s: %s", r.Call, r.Code, r.Error)
}
