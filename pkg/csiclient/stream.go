package csiclient

import (
	"context"
	"errors"
	"io"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// observeStream is observe for a call whose answer is a stream (CSI 1.13 SnapshotMetadata). It sets
// no deadline, because the length of the answer depends on the volume. The caller limits the time
// between two messages, and must cancel ctx when it stops reading.
func (d *Driver) observeStream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s := &observedStream{driver: d, ctx: ctx, method: method, began: time.Now()}
		ctx, s.cancel = context.WithCancel(context.WithValue(ctx, answerKey{}, &s.answered))
		var err error
		if s.ClientStream, err = streamer(ctx, desc, cc, method, opts...); err != nil {
			return nil, s.ended(err)
		}
		return s, nil
	}
}

// observedStream is one such call. Like any gRPC stream it has one reader.
type observedStream struct {
	grpc.ClientStream
	driver   *Driver
	ctx      context.Context // the caller's
	cancel   context.CancelFunc
	method   string
	began    time.Time
	request  proto.Message // set by SendMsg, before any answer
	answered atomic.Bool
	once     sync.Once
}

// SendMsg sends the request, or returns an error if it exceeds CSI's limits.
func (s *observedStream) SendMsg(m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return s.ended(status.Errorf(codes.Internal, "%s: request is a %T, not a message", s.method, m))
	}
	if err := checkLimits(msg); err != nil {
		s.cancel() // else gRPC keeps the stream until the caller's context ends
		return err
	}
	s.driver.warnOversize(path.Base(s.method), msg)
	s.request = msg
	return s.ended(s.ClientStream.SendMsg(m))
}

// RecvMsg reads a message of the answer.
func (s *observedStream) RecvMsg(m any) error { return s.ended(s.ClientStream.RecvMsg(m)) }

// ended returns err without secrets. The first error, io.EOF among them, ends the call: ended then
// measures and logs it.
func (s *observedStream) ended(err error) error {
	if err == nil {
		return nil
	}
	over := err
	if errors.Is(err, io.EOF) {
		over = nil
	} else {
		st := status.Convert(err)
		text := st.Message()
		if s.request != nil {
			text = cleanMessage(text, s.request)
		}
		over = &rpcError{s: status.New(st.Code(), text), answered: s.answered.Load()}
		err = over
	}
	s.once.Do(func() {
		s.cancel()
		took := time.Since(s.began)
		s.driver.measure(s.ctx, s.method, over, took)
		if s.request != nil {
			s.driver.logCall(s.ctx, ended{call: path.Base(s.method), req: s.request, took: took, err: over})
		}
	})
	return err
}
