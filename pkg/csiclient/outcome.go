package csiclient

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// outcomes is the whole table of what a code lets one conclude, for every call
// that is not in exceptions. The sections are those of the CSI 1.13
// specification; "gRPC" is the gRPC status code document.
var outcomes = map[codes.Code]state.Outcome{
	codes.OK: state.Done,
	// gRPC: the caller gave up. "Timeouts": only a negation call cancels, so the work may go on.
	codes.Canceled: state.Uncertain,
	// "Error Scheme" leaves it open; an answer of the driver is taken as definite.
	codes.Unknown: state.Failed,
	// "Error Scheme": the caller must fix the request before it retries.
	codes.InvalidArgument: state.Refused,
	// "Timeouts": the work may go on.
	codes.DeadlineExceeded: state.Uncertain,
	// Each Node call's errors: verify that the volume is there, back off. The world may change.
	codes.NotFound: state.Failed,
	// NodeStageVolume, NodePublishVolume errors: incompatible arguments; fix them first.
	codes.AlreadyExists: state.Refused,
	// "Error Scheme": an administrator has to grant something.
	codes.PermissionDenied: state.Refused,
	// Not definite: kubelet csi_client.go counts it among those that may be in progress.
	codes.ResourceExhausted: state.Uncertain,
	// NodeStageVolume, NodePublishVolume errors: wait until other use of the volume ends.
	codes.FailedPrecondition: state.Failed,
	// "Error Scheme": another call for the volume is pending; the same again with back-off.
	codes.Aborted: state.Uncertain,
	// NodeExpandVolume, CreateVolume errors: the range must be fixed first.
	codes.OutOfRange: state.Refused,
	// "Error Scheme": must not be retried.
	codes.Unimplemented: state.Final,
	// As Unknown.
	codes.Internal: state.Failed,
	// gRPC: the driver is away, or went away during the call.
	codes.Unavailable: state.Uncertain,
	// As Unknown.
	codes.DataLoss: state.Failed,
	// "Error Scheme": secrets are to be renewed first; every call reads them anew.
	codes.Unauthenticated: state.Failed,
}

// exceptions are the calls for which a code means something else.
var exceptions = map[string]map[codes.Code]state.Outcome{
	// NodeExpandVolume errors, "Volume in use": the caller must not retry. The
	// others are those by which the kubelet takes an expansion for infeasible
	// (KEP-1790): another size has to be asked for.
	nodeExpand: {
		codes.FailedPrecondition: state.Final, codes.InvalidArgument: state.Final, codes.OutOfRange: state.Final, codes.NotFound: state.Final,
	},
}

// silent reports whether gRPC, when it makes code up, does so because no answer came at
// all. It makes others up of an answer that cannot be read, as one that is too large.
func silent(code codes.Code) bool {
	return code == codes.DeadlineExceeded || code == codes.Canceled || code == codes.Unavailable
}

// outcomeOf looks a code up. One that the gRPC library did not know when this
// was written says nothing, so the work may be in any state.
func outcomeOf(call string, code codes.Code) state.Outcome {
	if o, ok := exceptions[call][code]; ok {
		return o
	}
	if o, ok := outcomes[code]; ok {
		return o
	}
	return state.Uncertain
}

// rpcError is how a call over this package's connection failed. Its text is the
// message alone, without secrets; status.FromError finds the rest.
type rpcError struct {
	s *status.Status
	// answered: the driver sent it. Otherwise the transport made it up.
	answered bool
}

func (e *rpcError) Error() string              { return e.s.Message() }
func (e *rpcError) GRPCStatus() *status.Status { return e.s }

// CallError returns err, which an RPC named call ("NodeStageVolume") gave, as a
// [*state.CallError] with the outcome that the code table gives it. A nil err
// gives nil, and one that is a CallError already is returned as it is. What the
// transport made up (INTERNAL, UNKNOWN without an answer) is Uncertain.
func CallError(call string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*state.CallError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*limitError](err); ok {
		return &state.CallError{Outcome: state.Refused, Call: call, Err: e}
	}
	s, ok := status.FromError(err)
	if !ok {
		return &state.CallError{Outcome: state.Failed, Call: call, Err: err}
	}
	outcome := outcomeOf(call, s.Code())
	e, ok := errors.AsType[*rpcError](err)
	made := ok && !e.answered // by gRPC on this side
	if made && (s.Code() == codes.Internal || s.Code() == codes.Unknown) {
		outcome = state.Uncertain
	}
	return &state.CallError{Outcome: outcome, Call: call, Code: s.Code().String(), Unanswered: made && silent(s.Code()), Err: err}
}
