package controller

import (
	"context"
	"maps"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Attributes are the contents of a VolumeAttributesClass, which can change while a volume is in
// use.
type Attributes struct {
	Class string `json:"class,omitempty"`
	// Parameters are the mutable_parameters.
	Parameters map[string]string `json:"parameters,omitempty"`
}

func (a Attributes) equal(o Attributes) bool {
	return a.Class == o.Class && maps.Equal(a.Parameters, o.Parameters)
}

// AttributesClass is the resolved VolumeAttributesClass of a claim. The zero value means none.
type AttributesClass struct {
	Attributes
	// Driver is the driver of the class, or "" if the class was not found.
	Driver state.DriverName
}

func (a AttributesClass) equal(o AttributesClass) bool {
	return a.Driver == o.Driver && a.Attributes.equal(o.Attributes)
}

// has reports whether the volume of r has the attributes.
func (a AttributesClass) has(r record) bool {
	return a.Driver == r.Spec.Driver && a.Attributes.equal(r.Attributes) && !r.Mixed
}

// check says why a volume of driver d cannot have the attributes. It returns the zero value if it
// can.
func (a AttributesClass) check(d state.DriverName, caps caps) held {
	switch {
	case a.Driver == "":
		return heldf("VolumeAttributesClass %q not found", a.Class).on(state.BadClass, a.Class)
	case a.Driver != d:
		return refusedf("its VolumeAttributesClass %q is for driver %s, but its volume is of driver %s", a.Class, a.Driver,
			d).on(state.BadClass, a.Class)
	case !caps.Modify:
		return refusedf("driver %s cannot give its volume the VolumeAttributesClass %q (it has no MODIFY_VOLUME)", d,
			a.Class).on(state.DriverUnable, string(d))
	}
	return held{}
}

// nextModify gives the volume the attributes that its claim names. It first repeats a call without
// a definite answer, with the same attributes. If the claim no longer names a class, the volume
// stays as it is: CSI has no call that removes attributes.
func nextModify(r record, w want, f facts, now time.Time) (op, held) {
	a := w.Claim.Attributes
	switch {
	case !w.Listed:
		return op{}, held{}
	case r.Modifying != nil:
		a = AttributesClass{*r.Modifying, r.Spec.Driver}
	case a.Class == "" || a.has(r):
		return op{}, held{}
	}
	if f.Driver.away() {
		return op{}, f.Driver.held()
	}
	if h := a.check(r.Spec.Driver, f.Driver.caps); h.waits() {
		return op{}, h
	}
	return op{verb: modifyVolume, attributes: a.Attributes, from: r.Volume.Phase}.ifDue(r.Modify, f, now)
}

func completeModify(r record, o op, res result, now time.Time) record {
	r.Mixed = res.err != nil && (r.Mixed || !res.unsent && !makesNothing(res.err))
	switch {
	case res.err == nil:
		r.Attributes, r.Modifying, r.Modify = o.attributes, nil, state.Retry{}
	case res.unsent || res.err.Outcome != state.Uncertain:
		r.Modifying = nil
		fallthrough
	default:
		r.Modify = addFailure(r.Modify, res.err, now)
	}
	return r
}

// sendModify changes the volume (CSI 1.13 ControllerModifyVolume).
func sendModify(ctx context.Context, client csi.ControllerClient, k call, secret map[string]string) (answer, error) {
	_, err := client.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
		VolumeId: k.rec.Handle, Secrets: secret, MutableParameters: k.op.attributes.Parameters,
	})
	return answer{}, err
}
