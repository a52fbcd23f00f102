package localdriver

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusal is an error with the gRPC code to answer.
type refusal struct {
	code codes.Code
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code codes.Code, format string, args ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// toStatus converts an error to the gRPC status to answer.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return status.Error(r.code, err.Error())
	}
	return status.Error(codeOf(err), err.Error())
}

// codeOf returns the code for an error that is not a refusal (CSI 1.13, "Error Scheme").
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, errUnreadable):
		return codes.DataLoss
	case isFull(err):
		return codes.ResourceExhausted
	case errors.Is(err, unix.ELOOP):
		return codes.InvalidArgument // a symbolic link in a path of the request
	}
	return codes.Internal
}

// isFull reports whether err means that the file system of the state directory is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

func invalid(format string, args ...any) error {
	return refuse(codes.InvalidArgument, format, args...)
}

func precondition(format string, args ...any) error {
	return refuse(codes.FailedPrecondition, format, args...)
}

func noVolume(id string) error { return refuse(codes.NotFound, "volume %q does not exist", id) }

func noSnapshot(id string) error {
	return refuse(codes.NotFound, "snapshot %q does not exist", id)
}

func noGroup(id string) error {
	return refuse(codes.NotFound, "group snapshot %q does not exist", id)
}

// noData reports that data is missing although there is a record.
func noData(id string, err error) error {
	return fmt.Errorf("data of volume %s: %w", id, err)
}
