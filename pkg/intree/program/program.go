// Package program runs the few programs that a built-in kind cannot do without,
// as mount.nfs.
//
// Invariants: no shell is involved and each argument reaches the program as one;
// no descriptor of this process but its output does. A program that hangs with
// its storage holds up its own key only, and none is started for a key while
// another one runs.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"
)

// ErrMissing means that a program is not installed.
var ErrMissing = errors.New("not installed")

// dirs are where programs are looked for. $PATH is not asked: it is the
// business of the operator who started the daemon.
var dirs = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// maxOutput bounds what is kept of a program's output (bytes): a server far
// away may have written it.
const maxOutput = 1024

// Command is a program to run.
type Command struct {
	// Name is the program's, without a directory.
	Name string
	Args []string
	// Packages says for people what to install to have it.
	Packages string
	// Key is what only one program at a time may work on, as a mount point.
	Key string
}

// Runner runs programs. The zero value is ready. It may be used by many goroutines.
type Runner struct {
	// Dirs are searched for programs; nil means those of the system.
	Dirs []string

	mu   sync.Mutex
	busy map[string]chan struct{} // by key: closed when the program has ended; guarded by mu
}

// Run runs the program to its end. Where ctx ends first, the program is killed,
// and Run returns although the kernel may not let it end yet. The error has the
// beginning of what the program said.
func (r *Runner) Run(ctx context.Context, c Command) error {
	path, err := r.find(c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w: it comes with %s", c.Name, err, c.Packages)
	}
	ended, err := r.enter(ctx, c.Key)
	if err != nil {
		return fmt.Errorf("%s: wait for the one before: %w", c.Name, err)
	}
	var said output
	cmd := exec.Command(path, c.Args...)
	cmd.Env = []string{"PATH=" + strings.Join(dirs, ":"), "LC_ALL=C"}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		r.leave(c.Key, ended)
		return fmt.Errorf("start %s: %w", path, err)
	}
	done := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		r.leave(c.Key, ended)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s: %w: %s", c.Name, err, said.text())
		}
		return nil
	case <-ctx.Done():
		// The whole group: a mount program may have started one of its own.
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		return fmt.Errorf("%s: %w", c.Name, context.Cause(ctx))
	}
}

// Has reports whether the program is there to be run.
func (r *Runner) Has(name string) bool {
	_, err := r.find(name)
	return err == nil
}

func (r *Runner) find(name string) (string, error) {
	in := r.Dirs
	if in == nil {
		in = dirs
	}
	for _, dir := range in {
		path := filepath.Join(dir, name)
		if unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

// enter waits until no program works on the key.
func (r *Runner) enter(ctx context.Context, key string) (chan struct{}, error) {
	mine := make(chan struct{})
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.mu.Lock()
		other, busy := r.busy[key]
		if !busy {
			if r.busy == nil {
				r.busy = map[string]chan struct{}{}
			}
			r.busy[key] = mine
		}
		r.mu.Unlock()
		if !busy {
			return mine, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
		}
	}
}

func (r *Runner) leave(key string, ended chan struct{}) {
	r.mu.Lock()
	delete(r.busy, key)
	r.mu.Unlock()
	close(ended)
}

// output keeps the beginning of what is written to it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p[:min(len(p), maxOutput-o.buf.Len())])
	return len(p), nil
}

// text is what was written, as one line of printable characters.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := strings.Join(strings.Fields(o.buf.String()), " ")
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, line)
}
