// Command csi-volmgr is the node daemon and the program to talk to it: flags,
// configuration, the verbs and how their answers look. It decides nothing.
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

	"github.com/csi-volmgr/csi-volmgr/pkg/node"
)

// helperArg is the one argument of a process that the daemon starts to do calls
// on storage that may hang. It is no verb: only the daemon has a socket for it.
const helperArg = "helper"

func main() {
	if len(os.Args) == 2 && os.Args[1] == helperArg {
		if err := node.ServeHelper(context.Background()); err != nil {
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

// runAs runs what the program is called by: mount(8) and Nomad start it by names of their own.
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

// run runs the program with args and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now, euid: os.Geteuid, node: runNode}
	return p.run(ctx, args)
}

// program is what the verbs get from the world around them.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	euid           func() int
	// node runs the daemon until ctx ends.
	node func(ctx context.Context, o runOptions, logger *slog.Logger) error
	// patience is after how long a verb says what it waits for, and how often; 0 for 3 s.
	patience time.Duration
	// socket is where the daemon answers (--socket).
	socket string
}

// colours reports whether words may be in colours: on a terminal, unless its user
// wants none (no-color.org).
func (p *program) colours() bool {
	_, terminal := p.width()
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// width is how many columns stdout's terminal has; ok is false where it is none.
func (p *program) width() (columns int, ok bool) {
	f, isFile := p.stdout.(*os.File)
	if !isFile {
		return 0, false
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	return columns, err == nil && columns > 0
}
