package isolate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// message is sent to a helper: a call, or, if both fields are empty, the notice that
// the caller no longer waits.
type message struct {
	Call    string          `json:"call,omitempty"`
	Request json.RawMessage `json:"request,omitempty"`
}

// answer is sent by a helper: one without content when it can take calls, then for each call
// any number of progress reports and one reply or failure.
type answer struct {
	Reply    json.RawMessage `json:"reply,omitempty"`
	Failure  *failure        `json:"failure,omitempty"`
	Progress *int64          `json:"progress,omitempty"`
}

// process is a helper in a process of its own.
type process struct {
	command Command
	known   []error // Service.Errors

	cmd  *exec.Cmd
	conn *os.File
	out  *json.Encoder
	in   *json.Decoder
}

func (h *process) do(
	ctx context.Context, m message, begun func(func() bool),
) (reply []byte, broken bool, err error) {
	if err := h.send(m); err != nil {
		return nil, true, err
	}
	pid, conn := h.cmd.Process.Pid, h.conn
	begun(func() bool { return !hasAnswer(conn) && !runnable(pid) })
	sent := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(sent)
		_ = h.out.Encode(message{}) // fails if the helper ended, which the answer reports
	})
	a, err := h.receive(ctx)
	if !stop() {
		<-sent // otherwise the notice could reach the next call
	}
	switch {
	case err != nil:
		return nil, true, h.lost(err)
	case a.Failure != nil:
		return nil, false, a.Failure.error(h.known)
	}
	return a.Reply, false, nil
}

// receive waits for the answer to a call and passes its progress reports on.
func (h *process) receive(ctx context.Context) (answer, error) {
	for {
		var a answer
		if err := h.in.Decode(&a); err != nil || a.Progress == nil {
			return a, err
		}
		Report(ctx, *a.Progress)
	}
}

// send sends a call to the process, and starts a new process if the old one ended.
func (h *process) send(m message) error {
	err := h.out.Encode(m)
	if err == nil {
		return nil
	}
	_ = h.lost(err) // it was killed while idle
	if err := h.start(); err != nil {
		return err
	}
	if err := h.out.Encode(m); err != nil {
		return h.lost(err)
	}
	return nil
}

// start starts the process and waits for its first word.
func (h *process) start() error {
	err := h.begin()
	if err == nil {
		var ready answer
		if err = h.in.Decode(&ready); err != nil {
			err = h.lost(err)
		}
	}
	if err != nil {
		return fmt.Errorf("start a helper: %w", err)
	}
	return nil
}

// begin starts the process with one end of a socket pair as its file descriptor 3.
func (h *process) begin() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	h.conn = os.NewFile(uintptr(fds[0]), "helper")
	theirs := os.NewFile(uintptr(fds[1]), "daemon")
	defer theirs.Close()
	cmd := h.command()
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, h.conn.Close())
	}
	h.cmd, h.out, h.in = cmd, json.NewEncoder(h.conn), json.NewDecoder(h.conn)
	return nil
}

// lost reaps a helper that ended during a call, and returns an error that says how it
// ended.
func (h *process) lost(cause error) error {
	h.conn.Close() // ends the helper if it is still alive
	err := h.cmd.Wait()
	if err == nil {
		err = cause
	}
	h.cmd = nil
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// end closes the process's socket, which ends the process, and waits for it.
func (h *process) end() {
	if h.cmd == nil {
		return
	}
	h.conn.Close()
	_ = h.cmd.Wait() // no call is running, so the exit status does not matter
}

// inside is a helper that runs calls in the caller's process.
type inside struct{ service Service }

func (h inside) start() error { return nil }

func (h inside) do(ctx context.Context, m message, begun func(func() bool)) ([]byte, bool, error) {
	begun(func() bool { return true })
	reply, err := h.service.handle(ctx, m.Call, m.Request)
	return reply, false, err
}

func (inside) end() {}
