package state

// Code is what a driver's gRPC status code means for the record, for the pace of further
// calls, and for people.
type Code struct {
	// Outcome is what the code implies about the call.
	Outcome Outcome
	// Overload means that the driver is overloaded, as it says or as its silence
	// suggests.
	Overload bool
	// Earlier means that an earlier call for the volume is still running.
	Earlier bool
	// Conflict means that the driver finds the volume in another state than the call
	// needs. Neither the request nor the storage is at fault.
	Conflict bool
	// Infeasible means that an expansion that fails with this code needs another size
	// (KEP-1790).
	Infeasible bool
	// MakesNothing means that a CreateVolume, or the creation of a snapshot, that fails
	// with this code made nothing.
	MakesNothing bool
	// Unauthorized means that the storage or the driver does not authorize the caller.
	Unauthorized bool
	// NeedsPerson means that only a person or another program can remove the cause.
	NeedsPerson bool
	// Advice says what a person can do. The placeholders {volume}, {handle} and {driver}
	// stand for those of the call; "" if the code implies no advice.
	Advice string
}

// CodeOf returns the meaning of the code named name ("Unavailable") in an answer to call
// ("NodeStageVolume"). An unknown code says nothing, so the work may be in any state.
func CodeOf(call, name string) Code {
	if c, ok := expandCodes[name]; ok && call == "NodeExpandVolume" {
		return c
	}
	c, ok := codes[name]
	if !ok {
		return Code{Outcome: Uncertain}
	}
	if call == "CreateVolumeGroupSnapshot" && name == "FailedPrecondition" {
		// CreateVolumeGroupSnapshot errors: these volumes cannot be snapshotted together. A
		// group is all or none, so none was made.
		c.MakesNothing = true
	}
	return c
}

// codes is the table of all codes. "Error Scheme" and "Timeouts" are sections of the CSI
// 1.13 specification; "gRPC" is the gRPC status code document. MakesNothing is set for
// the codes with which CSI lets a plugin refuse a CreateVolume: not ALREADY_EXISTS, nor
// any code with which a broken plugin or transport ends a call.
var codes = map[string]Code{
	"OK": {Outcome: Done},
	// gRPC: the caller gave up. "Timeouts": only a negation call cancels, so the work may
	// go on.
	"Canceled": {Outcome: Uncertain},
	// "Error Scheme" does not define it; an answer of the driver counts as definite.
	"Unknown": {Outcome: Failed, Conflict: true},
	// "Error Scheme": the caller must fix the request before it retries.
	"InvalidArgument": {
		Outcome: Refused, Infeasible: true, MakesNothing: true, NeedsPerson: true,
		Advice: "correct what the driver refuses in volume {volume} or its class: attributes, fsType, mountOptions, access " +
			"modes",
	},
	// "Timeouts": the work may go on.
	"DeadlineExceeded": {
		Outcome: Uncertain, Overload: true,
		Advice: "see whether the storage behind the driver hangs; only this volume waits for it",
	},
	// Each Node call's errors: verify that the volume exists, and back off. The volume
	// may come back, so the call is retried like after any failure; but only a person
	// looks for it.
	"NotFound": {
		Outcome: Failed, Infeasible: true, MakesNothing: true, NeedsPerson: true,
		Advice: `see whether the storage still has volume "{handle}"`,
	},
	// NodeStageVolume, NodePublishVolume errors: incompatible arguments; fix them first.
	"AlreadyExists": {
		Outcome: Refused, Conflict: true, NeedsPerson: true,
		Advice: "see whether the volume was made with other parameters before; they cannot be changed while it is in use",
	},
	// "Error Scheme": an administrator has to grant something.
	"PermissionDenied": {
		Outcome: Refused, MakesNothing: true, Unauthorized: true, NeedsPerson: true,
		Advice: "see which rights the driver has at its storage; the volume names no secret for this call",
	},
	// Not definite for a Node call: the kubelet's csi_client.go counts it among the codes
	// after which work may still be in progress. CreateVolume's errors: there is no room,
	// and nothing was made.
	"ResourceExhausted": {
		Outcome: Uncertain, Overload: true, MakesNothing: true,
		Advice: "make room: a limit of the driver, the storage or this node is reached",
	},
	// NodeStageVolume, NodePublishVolume errors: wait until other use of the volume ends.
	"FailedPrecondition": {
		Outcome: Failed, Conflict: true,
		Advice: "see whether the volume is still in use on another node or by another volume manager",
	},
	// "Error Scheme": another call for the volume is pending; retry with back-off.
	"Aborted": {
		Outcome: Uncertain, Earlier: true, Conflict: true,
		Advice: "wait: the driver is busy with an earlier call for this volume",
	},
	// NodeExpandVolume, CreateVolume errors: the range must be fixed first.
	"OutOfRange": {
		Outcome: Refused, Infeasible: true, MakesNothing: true, NeedsPerson: true,
		Advice: "ask for a size that the driver can serve",
	},
	// "Error Scheme": must not be retried.
	"Unimplemented": {
		Outcome: Final, MakesNothing: true, NeedsPerson: true,
		Advice: "use another driver for this: {driver} cannot do it",
	},
	// Like Unknown.
	"Internal": {Outcome: Failed, Conflict: true},
	// gRPC: the driver is away, or went away during the call.
	"Unavailable": {
		Outcome: Uncertain, Overload: true,
		Advice: "see in the driver's own log whether it reaches its storage: driver {driver}",
	},
	// Like Unknown, but no sign of a conflict.
	"DataLoss": {Outcome: Failed},
	// "Error Scheme": secrets must be renewed first. Every call reads them anew, so the
	// call is retried like after any failure.
	"Unauthenticated": {
		Outcome: Failed, MakesNothing: true, Unauthorized: true, NeedsPerson: true,
		Advice: "see which rights the driver has at its storage; the volume names no secret for this call",
	},
}

// expandCodes overrides codes for NodeExpandVolume: "Volume in use" must not be retried, and
// an infeasible expansion waits for another size.
var expandCodes = map[string]Code{
	"FailedPrecondition": {
		Outcome: Final, Conflict: true,
		Advice: "stop the pods that use the volume, if the driver grows only unused volumes; it grows when it is staged next",
	},
	"InvalidArgument": withOutcome(codes["InvalidArgument"], Final),
	"OutOfRange":      withOutcome(codes["OutOfRange"], Final),
	"NotFound":        withOutcome(codes["NotFound"], Final),
}

func withOutcome(c Code, o Outcome) Code {
	c.Outcome = o
	return c
}
