// Package program runs the few programs that built-in kinds need, such as mount.nfs.
//
// Invariants: no shell is involved, each argument reaches the program unchanged, and
// the program inherits no descriptor of this process except for its output. A program
// that hangs with its storage blocks only its own key; no second program starts for a
// key while one is running.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/keylock"
)

// ErrMissing means that a program is not installed.
var ErrMissing = errors.New("not installed")

// dirs are searched for programs. $PATH is not used, since it is the setting of the
// operator who started the daemon.
var dirs = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// Dirs returns the system's directories, which are searched for programs.
func Dirs() []string { return slices.Clone(dirs) }

const (
	// maxOutput bounds what is kept of a program's output (bytes), since a remote server
	// may have written it.
	maxOutput = 1024
	// outputTime is how long an ended program's output is read. A server that it left
	// behind may keep the output open.
	outputTime = time.Second
)

// Command is a program to run.
type Command struct {
	// Name is the program's name, without a directory.
	Name string
	Args []string
	// Packages tells users which package to install.
	Packages string
	// Key names what only one program at a time may work on, such as a mount point.
	Key string
	// ToEnd means that the program is never killed, since what it leaves half done is worse
	// than its going on: a device on which mkfs was killed has data and no file system.
	ToEnd bool
}

// Runner runs programs. The zero value is ready to use. It is safe for concurrent use.
type Runner struct {
	// Dirs are searched for programs; nil means the system's directories.
	Dirs []string

	locks keylock.Locks // by key, each held while a program runs
}

// Run runs the program and waits for it. If ctx ends first, Run kills the program (unless it
// is to run to its end) and returns, even if the kernel does not let the program end yet. The error contains the
// beginning of the program's output.
func (r *Runner) Run(ctx context.Context, c Command) error {
	path, err := r.find(c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w: it comes with %s", c.Name, err, c.Packages)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", c.Name, context.Cause(ctx))
	}
	unlock, err := r.locks.Lock(ctx, c.Key)
	if err != nil {
		return fmt.Errorf("%s: wait for the program that works on %s: %w", c.Name, c.Key, err)
	}
	cmd := exec.Command(path, c.Args...)
	cmd.Env = []string{"PATH=" + strings.Join(dirs, ":"), "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said output
	read, err := said.start(cmd)
	if err != nil {
		unlock()
		return fmt.Errorf("start %s: %w", path, err)
	}
	exited, done := make(chan struct{}), make(chan error, 1)
	go func() {
		err := cmd.Wait()
		close(exited)
		select {
		case <-read:
		case <-time.After(outputTime):
		}
		unlock()
		done <- err
	}()
	select {
	case <-exited:
	case <-ctx.Done():
		if !isClosed(exited) {
			// Kill the whole process group: a mount program may have started another
			// program.
			if !c.ToEnd {
				_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			}
			return fmt.Errorf("%s: %w", c.Name, context.Cause(ctx))
		}
	}
	if err := <-done; err != nil {
		return fmt.Errorf("%s: %w: %s", c.Name, err, said.text())
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Has reports whether the program is installed.
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

// output keeps the beginning of what is written to it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// start starts a command that writes to o. read is closed once every process has closed
// its end; until then, what the processes write is taken from them.
func (o *output) start(cmd *exec.Cmd) (read <-chan struct{}, err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = to, to
	err = cmd.Start()
	to.Close()
	if err != nil {
		from.Close()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer from.Close()
		_, _ = io.Copy(o, from) // an error ends it as the end does
	}()
	return done, nil
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p[:min(len(p), maxOutput-o.buf.Len())])
	return len(p), nil
}

// text returns the output as one line of printable characters.
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
