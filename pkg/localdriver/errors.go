package localdriver

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answer turns what went wrong in this package into the gRPC status to answer
// with. An error that has one already keeps it; the rest goes by this table.
func answer(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		return status.Error(s.GRPCStatus().Code(), err.Error())
	}
	return status.Error(codeOf(err), err.Error())
}

// codeOf is the code for an error that names none (CSI 1.13, "Error Scheme").
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, errUnreadable):
		return codes.DataLoss
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return codes.ResourceExhausted
	case errors.Is(err, unix.ELOOP):
		return codes.InvalidArgument // a symbolic link in a path of the request
	}
	return codes.Internal
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func precondition(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

func noVolume(id string) error { return status.Errorf(codes.NotFound, "volume %q does not exist", id) }

func noSnapshot(id string) error {
	return status.Errorf(codes.NotFound, "snapshot %q does not exist", id)
}

// noData says that what the record promises is not there.
func noData(id string, err error) error {
	return fmt.Errorf("data of volume %s: %w", id, err)
}
