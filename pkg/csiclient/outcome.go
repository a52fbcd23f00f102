package csiclient

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// silent reports whether gRPC's client makes up this code because no answer came. It
// makes up other codes for an answer that it cannot read, for example a too large one.
func silent(code codes.Code) bool {
	return code == codes.DeadlineExceeded || code == codes.Canceled || code == codes.Unavailable
}

// ownPrefix begins the message of gRPC's client about an answer that it cannot read.
// Only this prefix distinguishes such an error from a status that the driver sent.
const ownPrefix = "grpc: "

// rpcError is the error of a failed call over this package's connection. Its text is
// only the message, without secrets; status.FromError returns the code too.
type rpcError struct {
	s *status.Status
	// answered is set if the driver sent the status. Otherwise gRPC's client made it up.
	answered bool
}

func (e *rpcError) Error() string              { return e.s.Message() }
func (e *rpcError) GRPCStatus() *status.Status { return e.s }

// CallError converts err, the error of the RPC named call ("NodeStageVolume"), to a
// [*state.CallError] with the outcome from [state.CodeOf]. It returns nil for nil, and
// returns a CallError unchanged. An INTERNAL or UNKNOWN that gRPC's client made up
// without an answer is Uncertain.
func CallError(call string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*state.CallError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*limitError](err); ok {
		return &state.CallError{Outcome: state.Refused, Call: call, Reason: state.BadSource, Err: e}
	}
	s, ok := status.FromError(err)
	if !ok {
		return &state.CallError{Outcome: state.Failed, Call: call, Err: err}
	}
	outcome := state.CodeOf(call, s.Code().String()).Outcome
	e, ok := errors.AsType[*rpcError](err)
	made := ok && !e.answered // made up by gRPC's client
	if made && (s.Code() == codes.Internal || s.Code() == codes.Unknown) {
		outcome = state.Uncertain
	}
	var reason state.Reason
	if strings.HasPrefix(s.Message(), ownPrefix) {
		reason = state.Unreadable
	}
	return &state.CallError{
		Outcome: outcome, Call: call, Code: s.Code().String(), Unanswered: made && silent(s.Code()),
		Reason: reason, Err: err,
	}
}
