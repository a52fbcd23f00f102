package controller

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The back-off of calls that fail. It is short at first, because most failures after a start come
// from a driver that is still starting. Its maximum is what a person who has repaired a backend is
// willing to wait.
const (
	firstWait   = 500 * time.Millisecond
	longestWait = 5 * time.Minute
	// refusedWait is the minimum wait after a refusal. A change of the request is an event, but a
	// change of a backend's limits is not: a person who repaired it waits a few seconds at first.
	refusedWait = 5 * time.Second
)

// result is the outcome of a call.
type result struct {
	// err is nil if the driver answered OK.
	err *state.CallError
	// unsent means that the call failed before anything reached the driver.
	unsent bool
	// created is the answer to createVolume.
	created created
	// anothers means that createVolume was answered with another claim's volume.
	anothers bool
	// bytes and nodeExpand are the answer to expandVolume: the new capacity, and whether the node
	// has to expand the volume too.
	bytes      int64
	nodeExpand bool
}

// created is the checked answer to CreateVolume.
type created struct {
	handle        string
	capacityBytes int64
	context       map[string]string
	topology      []map[string]string
	// reject says why the claim cannot use the volume, or is "".
	reject string
}

// begin returns the record that must be durable before o starts.
func begin(r record, w want, o op, nodeID string) record {
	switch o.verb {
	case createVolume:
		if r.Volume.Phase == state.Absent {
			r.Claim, r.UID, r.Name, r.Sole = w.Claim.Key, w.Claim.UID, w.Claim.volumeName(), true
		}
		r.Spec, r.Volume.Phase, r.Unanswered = o.spec, state.Entering, true
	case deleteVolume:
		r.Volume.Phase = state.Leaving
	case expandVolume:
		r.Growing = o.bytes
	case modifyVolume:
		r.Modifying = &o.attributes
	case acceptSize:
		r.RequestedBytes, r.CapacityBytes, r.Growing, r.Expand = w.Claim.SizeBytes, o.bytes, 0, state.Retry{}
	case attachVolume:
		r.Attach, r.NodeID = state.Entering, nodeID
	case detachVolume:
		r.Attach = state.Leaving
		if r.NodeID == "" { // an empty node_id would mean all nodes (CSI 1.13 ControllerUnpublishVolume)
			r.NodeID = nodeID
		}
	case dropClaim:
		r = record{}
	case noVerb:
	default:
		panic(fmt.Sprintf("begin: verb %d", o.verb))
	}
	return r
}

// complete returns the record after o ended with res. It is empty if nothing is left.
func complete(r record, o op, res result, now time.Time) record {
	switch o.verb {
	case createVolume:
		return completeCreate(r, o, res, now)
	case deleteVolume:
		return completeDelete(r, res, now)
	case expandVolume:
		return completeExpand(r, o, res, now)
	case modifyVolume:
		return completeModify(r, o, res, now)
	case attachVolume:
		if res.err == nil {
			r.Attach = state.Present
		}
	case detachVolume:
		if res.err == nil {
			r.Attach, r.NodeID = state.Absent, ""
		}
	default:
		panic(fmt.Sprintf("complete: verb %d is no call", o.verb))
	}
	return r
}

func completeCreate(r record, o op, res result, now time.Time) record {
	if res.created.reject != "" && !r.Delete {
		// It may hold data: a driver also answers with an existing volume of the name, which a lost
		// journal knew, or which is another node's.
		res.err = wrongAnswer(o.verb.String(), fmt.Errorf("%s; it is kept, since it may hold data", res.created.reject))
	}
	if res.err != nil {
		if o.from == state.Absent && (res.unsent || makesNothing(res.err)) || res.anothers && r.Delete {
			r.Volume.Phase = state.Absent
		}
		switch {
		case res.unsent:
			r.Unanswered = o.again
		case makesNothing(res.err), res.err.Code == codes.OK.String():
			r.Unanswered = false
		default:
			r.Unanswered = o.again || res.err.Outcome == state.Uncertain
		}
		r.Volume.Failed = addFailure(r.Volume.Retry(), res.err, now).Kept()
		return r
	}
	c := res.created
	r.Unanswered = false
	r.Handle, r.CapacityBytes, r.NodeBytes = c.handle, c.capacityBytes, c.capacityBytes
	r.Context, r.Topology, r.RequestedBytes = c.context, c.topology, r.Spec.SizeBytes
	r.Attributes = r.Spec.Attributes
	r.Volume = state.Fact{Phase: state.Present}
	return r
}

func completeDelete(r record, res result, now time.Time) record {
	if res.err != nil {
		r.Volume.Failed = addFailure(r.Volume.Retry(), res.err, now).Kept()
		return r
	}
	return record{}
}

func completeExpand(r record, o op, res result, now time.Time) record {
	switch {
	case res.err == nil:
		due := o.again || r.NodeBytes < r.CapacityBytes // the lost answer, or the one before, may have asked for it
		r.RequestedBytes, r.CapacityBytes = max(r.RequestedBytes, o.bytes), max(r.CapacityBytes, res.bytes)
		if !res.nodeExpand && !due {
			r.NodeBytes = r.CapacityBytes
		}
		r.Growing, r.Expand = 0, state.Retry{}
	case res.unsent || res.err.Outcome != state.Uncertain:
		r.Growing = 0
		fallthrough
	default:
		r.Expand = addFailure(r.Expand, res.err, now)
	}
	return r
}

// makesNothing reports whether a CreateVolume that failed with e cannot have made anything.
func makesNothing(e *state.CallError) bool {
	switch {
	case e.Code == "":
		return e.Outcome == state.Refused // never sent: CSI forbids such a request
	case e.Reason == state.Unreadable:
		return false // the code is that of gRPC's client, for example about an answer that is too large
	}
	return state.CodeOf(e.Call, e.Code).MakesNothing
}

// addFailure returns r after one more failure.
func addFailure(r state.Retry, e *state.CallError, now time.Time) state.Retry {
	if r.Attempts == 0 {
		r.Since = now
	}
	r.Attempts++
	r.NotBefore = now.Add(backoff(r.Attempts, e.Outcome))
	r.Final = e.Outcome == state.Final
	r.Unanswered = e.Unanswered
	r.Call, r.Code, r.Error, r.Reason = e.Call, e.Code, e.Err.Error(), e.Reason
	return r
}

// backoff returns how long to wait after the given number of failures.
func backoff(attempts int, o state.Outcome) time.Duration {
	d := longestWait
	if shift := attempts - 1; shift < 20 {
		d = min(firstWait<<shift, longestWait)
	}
	if o == state.Refused {
		d = max(d, refusedWait)
	}
	return d
}

// clearPauses makes all waiting calls of r due now, because of an event.
func clearPauses(r record) record {
	again := r.Volume.Retry()
	again.NotBefore, again.Final = time.Time{}, false
	r.Volume.Failed = again.Kept()
	r.Expand.NotBefore, r.Expand.Final = time.Time{}, false
	r.Modify.NotBefore, r.Modify.Final = time.Time{}, false
	return r
}
