package isolate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// connFD is the file descriptor of a helper's socket.
const connFD = 3

// Serve does the calls that come over file descriptor 3, one after another,
// until the other side is gone; ctx is that of all calls. The process is to end then, at once: what a call
// left to do, no caller has asked for. Signals that end the daemon are not for its
// helpers, which end with it.
func Serve(ctx context.Context, s Service) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := unix.SetNonblock(connFD, true); err != nil {
		return fmt.Errorf("helper: file descriptor %d is no socket: %w", connFD, err)
	}
	conn := os.NewFile(connFD, "daemon")
	defer conn.Close()
	return serve(ctx, conn, s.withBounds())
}

func serve(life context.Context, conn io.ReadWriter, s Service) error {
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	cancel := context.CancelFunc(func() {})
	for {
		var m message
		err := in.Decode(&m)
		cancel()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("helper: read a call: %w", err)
		case m.Call == "":
			continue // the end of the wait
		}
		var ctx context.Context
		ctx, cancel = context.WithCancel(life)
		r := &reply{out: out}
		go func() { r.send(s.answer(WithProgress(ctx, r.progress), m)) }()
	}
}

// reply writes what there is to say of one call; nothing after its answer.
type reply struct {
	mu   sync.Mutex // guards what follows
	out  *json.Encoder
	over bool
}

func (r *reply) progress(done int64) { r.send(answer{Progress: &done}) }

func (r *reply) send(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.over = a.Progress == nil
	// Where the daemon is gone, reading ends the process.
	_ = r.out.Encode(a)
}

func (s Service) answer(ctx context.Context, m message) answer {
	reply, err := s.handle(ctx, m.Call, m.Request)
	if err != nil {
		return answer{Failure: newFailure(err, s.Errors)}
	}
	return answer{Reply: reply}
}

func (s Service) handle(ctx context.Context, name string, request []byte) ([]byte, error) {
	f, ok := s.Handlers[name]
	if !ok {
		return nil, fmt.Errorf("no handler for call %q", name)
	}
	return f(ctx, request)
}
