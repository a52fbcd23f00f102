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

// Serve runs the calls that arrive over file descriptor 3, one after another, until the
// daemon closes its end. ctx is the parent of each call's context. The process must
// exit as soon as Serve returns: no caller waits for an unfinished call. Serve ignores
// the signals that end the daemon, since the helpers end with it.
func Serve(ctx context.Context, s Service) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := unix.SetNonblock(connFD, true); err != nil {
		return fmt.Errorf("helper: file descriptor %d is not a socket: %w", connFD, err)
	}
	conn := os.NewFile(connFD, "daemon")
	defer conn.Close()
	return serve(ctx, conn, s.withBounds())
}

func serve(life context.Context, conn io.ReadWriter, s Service) error {
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	_ = out.Encode(answer{}) // the first word; if the daemon is gone, the first read ends the process
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
			continue // no caller waits any longer
		}
		var ctx context.Context
		ctx, cancel = context.WithCancel(life)
		r := &reply{out: out}
		go func() { r.send(s.answer(WithProgress(ctx, r.progress), m)) }()
	}
}

// reply writes the answers to one call, and nothing after the final one.
type reply struct {
	mu   sync.Mutex // guards the fields below
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
	// If the daemon is gone, the next read ends the process.
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
