package csiclient

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// silent reports whether gRPC, when it makes code up, does so because no answer came at
// all. It makes others up of an answer that cannot be read, as one that is too large.
func silent(code codes.Code) bool {
	return code == codes.DeadlineExceeded || code == codes.Canceled || code == codes.Unavailable
}

// ownWords begin what gRPC itself says of an answer that it cannot read: nothing else
// tells that from a status that the driver sent.
const ownWords = "grpc: "

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
// [*state.CallError] with the outcome that [state.CodeOf] gives it. A nil err
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
	outcome := state.CodeOf(call, s.Code().String()).Outcome
	e, ok := errors.AsType[*rpcError](err)
	made := ok && !e.answered // by gRPC on this side
	if made && (s.Code() == codes.Internal || s.Code() == codes.Unknown) {
		outcome = state.Uncertain
	}
	var reason state.Reason
	if strings.HasPrefix(s.Message(), ownWords) {
		reason = state.Unreadable
	}
	return &state.CallError{
		Outcome: outcome, Call: call, Code: s.Code().String(), Unanswered: made && silent(s.Code()),
		Reason: reason, Err: err,
	}
}
