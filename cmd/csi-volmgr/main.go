// Command csi-volmgr is the node daemon and its client: flags, configuration, the verbs and the form of
// their output. It makes no decisions about volumes.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/csi-volmgr/csi-volmgr/internal/wire"
)

// helperArg is the only argument of a process that the daemon starts for calls on storage that may hang.
// It is no verb: only the daemon has a socket for it.
const helperArg = "helper"

func main() {
	if len(os.Args) == 2 && os.Args[1] == helperArg {
		if err := wire.ServeHelper(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "csi-volmgr:", err)
			os.Exit(exitFailed)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := runAs(ctx, filepath.Base(os.Args[0]), os.Args[1:])
	stop()
	os.Exit(code)
}

// runAs runs the program that name stands for: mount(8) and Nomad start it under names of their own.
func runAs(ctx context.Context, name string, args []string) int {
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, now: time.Now, euid: os.Geteuid, node: runNode}
	switch name {
	case mountHelper:
		return p.mountCSI(ctx, args)
	case nomadPlugin:
		return p.nomad(ctx, args, os.Getenv)
	}
	return p.run(ctx, args)
}

// program is the environment of the verbs.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	euid           func() int
	// node runs the daemon until ctx ends.
	node func(ctx context.Context, o runOptions, logger *slog.Logger) error
	// patience is how long a verb waits before it says what it waits for, and how often it looks; 0 means
	// 3 s.
	patience time.Duration
	// socket is the path of the daemon's socket (--socket).
	socket string
	// args are the words of the command line; none under mount(8) and Nomad.
	args []string
}

// colours reports whether output may have colours: on a terminal, unless its user wants none
// (no-color.org).
func (p *program) colours() bool {
	_, terminal := p.width()
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// width returns the number of columns of stdout's terminal; ok is false if it is no terminal.
func (p *program) width() (columns int, ok bool) {
	f, isFile := p.stdout.(*os.File)
	if !isFile {
		return 0, false
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	return columns, err == nil && columns > 0
}
