package csiclient

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The table, written a second time from the specification, for calls of each class.
// Items: C12, N-27, N-28, N-58, N-64, N-71, N-102, I09, N-29, N-30.
// Sidecars: SA-02, SP-19, SS-03.
func TestEveryCodeHasAnOutcomeForEveryCall(t *testing.T) {
	want := map[codes.Code]state.Outcome{
		codes.Canceled:           state.Uncertain,
		codes.Unknown:            state.Failed,
		codes.InvalidArgument:    state.Refused,
		codes.DeadlineExceeded:   state.Uncertain,
		codes.NotFound:           state.Failed,
		codes.AlreadyExists:      state.Refused,
		codes.PermissionDenied:   state.Refused,
		codes.ResourceExhausted:  state.Uncertain,
		codes.FailedPrecondition: state.Failed,
		codes.Aborted:            state.Uncertain,
		codes.OutOfRange:         state.Refused,
		codes.Unimplemented:      state.Final,
		codes.Internal:           state.Failed,
		codes.Unavailable:        state.Uncertain,
		codes.DataLoss:           state.Failed,
		codes.Unauthenticated:    state.Failed,
		17:                       state.Uncertain,
		9999:                     state.Uncertain,
	}
	for code := codes.Code(1); code <= 16; code++ {
		if _, ok := want[code]; !ok {
			t.Errorf("%v is in no row", code)
		}
	}
	calls := []string{
		nodeStage, nodePublish, nodeUnpublish, nodeUnstage, nodeExpand, nodeStats,
		"NodeGetInfo", "Probe", "CreateVolume", "ControllerPublishVolume", "DeleteVolume",
	}
	for _, call := range calls {
		for code, outcome := range want {
			infeasible := []codes.Code{codes.FailedPrecondition, codes.InvalidArgument, codes.OutOfRange, codes.NotFound}
			if call == nodeExpand && slices.Contains(infeasible, code) {
				outcome = state.Final // it fails until the volume is unused or another size is asked for
			}
			err := fmt.Errorf("wrapped: %w", &rpcError{s: status.New(code, "boom"), answered: true})
			e, ok := errors.AsType[*state.CallError](CallError(call, err))
			if !ok || e.Outcome != outcome || e.Code != code.String() || e.Call != call {
				t.Errorf("%s, %v: got %+v, want outcome %v", call, code, e, outcome)
			}
		}
	}
}

func TestWhatTheTransportMadeUpIsUncertain(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.Unknown} {
		err := CallError(nodePublish, &rpcError{s: status.New(code, "stream broke")})
		if e, _ := errors.AsType[*state.CallError](err); e.Outcome != state.Uncertain {
			t.Errorf("%v without an answer: %v, want uncertain", code, e.Outcome)
		}
	}
}

// Faults: A167.
func TestNoAnswerIsToldFromOneThatCannotBeRead(t *testing.T) {
	none := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable}
	for code := codes.Code(1); code <= 16; code++ {
		for _, answered := range []bool{false, true} {
			e, _ := errors.AsType[*state.CallError](CallError(nodeStage, &rpcError{s: status.New(code, "boom"), answered: answered}))
			if want := !answered && slices.Contains(none, code); e.Unanswered != want {
				t.Errorf("%v, answered %t: unanswered is %t", code, answered, e.Unanswered)
			}
			if e.Reason != "" {
				t.Errorf("%v, answered %t: the reason is %q", code, answered, e.Reason)
			}
			garbled, _ := errors.AsType[*state.CallError](CallError(nodeStage,
				&rpcError{s: status.New(code, "grpc: failed to unmarshal"), answered: answered}))
			if garbled.Reason != state.Unreadable {
				t.Errorf("%v, answered %t: the reason of what cannot be read is %q", code, answered, garbled.Reason)
			}
		}
	}
}

func TestCallErrorKeepsWhatItIsGiven(t *testing.T) {
	if err := CallError(nodeStage, nil); err != nil {
		t.Errorf("nil became %v", err)
	}
	first := failed(nodeStage, errors.New("no directory"))
	if err := CallError(nodePublish, first); err != first {
		t.Errorf("a CallError became %v", err)
	}
	err := CallError(nodeStage, &limitError{"volume_id", "129 bytes, CSI allows 128"})
	if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Refused || e.Code != "" || e.Reason != state.BadSource {
		t.Errorf("a limit became %+v", err)
	}
	err = CallError(nodeStage, errors.New("plain"))
	if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Failed || e.Code != "" {
		t.Errorf("an error that is no status became %+v", err)
	}
}
