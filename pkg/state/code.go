package state

// Code is what a driver's answer with a gRPC code means: for the record, for the pace
// of further calls, and for people.
type Code struct {
	// Outcome is what it lets one conclude.
	Outcome Outcome
	// Overload: the driver, or the want of its answer, says that it has too much to do.
	Overload bool
	// Earlier: an earlier call for the volume goes on.
	Earlier bool
	// Conflict: the driver finds the volume in another state than the call needs. The
	// request and the storage have no part in it.
	Conflict bool
	// Infeasible: an expansion that fails so needs another size (KEP-1790).
	Infeasible bool
	// MakesNothing: a CreateVolume, or the making of a snapshot, that fails so made nothing.
	MakesNothing bool
	// Rights: the storage, or the driver, does not accept who asks.
	Rights bool
	// Person: only a person, or another program, changes what makes it fail.
	Person bool
	// Advice says what a person can do. {volume}, {handle} and {driver} stand for those
	// of the call; "" where the code says nothing.
	Advice string
}

// CodeOf returns what the code of a name ("Unavailable") means as the answer to a call
// ("NodeStageVolume"). A code that is not known says nothing, so the work may be in any
// state.
func CodeOf(call, name string) Code {
	if c, ok := ofExpand[name]; ok && call == "NodeExpandVolume" {
		return c
	}
	c, ok := codes[name]
	if !ok {
		return Code{Outcome: Uncertain}
	}
	if call == "CreateVolumeGroupSnapshot" && name == "FailedPrecondition" {
		// Its errors: these volumes cannot be snapshotted together. A group is all or none, so none was made.
		c.MakesNothing = true
	}
	return c
}

// codes is the table of all codes. "Error Scheme" and "Timeouts" are sections of the
// CSI 1.13 specification; "gRPC" is the gRPC status code document. MakesNothing have
// those by which CSI lets a plugin turn a CreateVolume down: not ALREADY_EXISTS, nor any
// by which a broken plugin or transport ends a call.
var codes = map[string]Code{
	"OK": {Outcome: Done},
	// gRPC: the caller gave up. "Timeouts": only a negation call cancels, so the work may go on.
	"Canceled": {Outcome: Uncertain},
	// "Error Scheme" leaves it open; an answer of the driver is taken as definite.
	"Unknown": {Outcome: Failed, Conflict: true},
	// "Error Scheme": the caller must fix the request before it retries.
	"InvalidArgument": {
		Outcome: Refused, Infeasible: true, MakesNothing: true, Person: true,
		Advice: "correct what the driver refuses in volume {volume} or its class: attributes, fsType, mountOptions, access " +
			"modes",
	},
	// "Timeouts": the work may go on.
	"DeadlineExceeded": {
		Outcome: Uncertain, Overload: true,
		Advice: "see whether the storage behind the driver hangs; only this volume waits for it",
	},
	// Each Node call's errors: verify that the volume is there, back off. The storage may
	// have it again, so it is tried as any failure; but only a person looks for it.
	"NotFound": {
		Outcome: Failed, Infeasible: true, MakesNothing: true, Person: true,
		Advice: `see whether the storage still has volume "{handle}"`,
	},
	// NodeStageVolume, NodePublishVolume errors: incompatible arguments; fix them first.
	"AlreadyExists": {
		Outcome: Refused, Conflict: true, Person: true,
		Advice: "see whether the volume was made with other parameters before; they cannot be changed while it is in use",
	},
	// "Error Scheme": an administrator has to grant something.
	"PermissionDenied": {
		Outcome: Refused, MakesNothing: true, Rights: true, Person: true,
		Advice: "see which rights the driver has at its storage; the volume names no secret for this call",
	},
	// Not definite of a Node call: kubelet csi_client.go counts it among those that may be
	// in progress. CreateVolume's errors: there is no room, and nothing was made.
	"ResourceExhausted": {
		Outcome: Uncertain, Overload: true, MakesNothing: true,
		Advice: "make room: a limit of the driver, the storage or this node is reached",
	},
	// NodeStageVolume, NodePublishVolume errors: wait until other use of the volume ends.
	"FailedPrecondition": {
		Outcome: Failed, Conflict: true,
		Advice: "see whether the volume is still in use on another node or by another volume manager",
	},
	// "Error Scheme": another call for the volume is pending; the same again with back-off.
	"Aborted": {
		Outcome: Uncertain, Earlier: true, Conflict: true,
		Advice: "wait: the driver is busy with an earlier call for this volume",
	},
	// NodeExpandVolume, CreateVolume errors: the range must be fixed first.
	"OutOfRange": {
		Outcome: Refused, Infeasible: true, MakesNothing: true, Person: true,
		Advice: "ask for a size that the driver can serve",
	},
	// "Error Scheme": must not be retried.
	"Unimplemented": {
		Outcome: Final, MakesNothing: true, Person: true,
		Advice: "use another driver for this: {driver} cannot do it",
	},
	// As Unknown.
	"Internal": {Outcome: Failed, Conflict: true},
	// gRPC: the driver is away, or went away during the call.
	"Unavailable": {
		Outcome: Uncertain, Overload: true,
		Advice: "see in the driver's own log whether it reaches its storage: driver {driver}",
	},
	// As Unknown.
	"DataLoss": {Outcome: Failed},
	// "Error Scheme": secrets are to be renewed first; every call reads them anew, so it is
	// tried as any failure.
	"Unauthenticated": {
		Outcome: Failed, MakesNothing: true, Rights: true, Person: true,
		Advice: "see which rights the driver has at its storage; the volume names no secret for this call",
	},
}

// ofExpand is what codes mean otherwise of NodeExpandVolume: "Volume in use" must not be
// retried, and what makes an expansion infeasible waits for another size.
var ofExpand = map[string]Code{
	"FailedPrecondition": {
		Outcome: Final, Conflict: true,
		Advice: "stop the pods that use the volume, if the driver grows only unused volumes; it grows when it is staged next",
	},
	"InvalidArgument": with(codes["InvalidArgument"], Final),
	"OutOfRange":      with(codes["OutOfRange"], Final),
	"NotFound":        with(codes["NotFound"], Final),
}

func with(c Code, o Outcome) Code {
	c.Outcome = o
	return c
}
