package program_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
)

// runner returns a Runner with one program, the given shell script.
func runner(t *testing.T, script string) *program.Runner {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mount.test"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return &program.Runner{Dirs: []string{"/nowhere", dir}}
}

// fifos makes FIFOs, and opens the first one without waiting for the other side.
func fifos(t *testing.T, gate string, others ...string) *os.File {
	t.Helper()
	for _, fifo := range append(others, gate) {
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { open.Close() })
	return open
}

// C7: the program gets each argument unchanged and as one, whatever it contains.
//
// Attacks: C7.
func TestAttackArgumentsReachNoShell(t *testing.T) {
	out := filepath.Join(t.TempDir(), "args")
	evil := []string{out, "$(touch /tmp/evil)", "`id`", "; id", "&& id", "a b", "'", "\"", "%PATH%", "-o", "new\nline", "*", "", "\\"}
	if err := runner(t, `f=$1; shift; for a; do printf '<%s>' "$a"; done > "$f"`).Run(t.Context(), program.Command{Name: "mount.test", Args: evil}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if want := "<" + strings.Join(evil[1:], "><") + ">"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// C22: the program gets no open file of the daemon; C9: nor its environment.
// Attacks: C22.
func TestAttackProgramInheritsNothing(t *testing.T) {
	t.Setenv("SECRET_OF_THE_DAEMON", "canary")
	f, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := filepath.Join(t.TempDir(), "out")
	err = runner(t, `{ for f in /proc/$$/fd/*; do readlink "$f"; done; cat /proc/$$/environ; } > `+out).Run(t.Context(), program.Command{Name: "mount.test"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil || strings.Contains(string(got), f.Name()) || strings.Contains(string(got), "canary") {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestMissingProgramNamesItsPackage(t *testing.T) {
	err := new(program.Runner).Run(t.Context(), program.Command{Name: "mount.nothing", Packages: "nothing-common"})
	if !errors.Is(err, program.ErrMissing) || !strings.Contains(err.Error(), "mount.nothing") || !strings.Contains(err.Error(), "nothing-common") {
		t.Errorf("got %v", err)
	}
}

// The answer of a server to a mount helper gives a pod no way to read what it may not
// reach.
//
// Attacks: C15.
func TestFailureTellsWhatTheProgramSaidInOneShortLine(t *testing.T) {
	err := runner(t, `printf 'no such\n\033[31mthing'; head -c 100000 /dev/zero | tr '\0' x >&2; exit 32`).Run(t.Context(), program.Command{Name: "mount.test"})
	if err == nil || !strings.Contains(err.Error(), "exit status 32: no such ?[31mthing") || len(err.Error()) > 1200 || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("got %v", err)
	}
}

// A program that does not end is killed with its children. Until it has ended, no
// second program works on the same key.
func TestEndedContextKillsTheProgramAndItsChildren(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r := runner(t, `[ "$1" = quick ] && exit 0; sh -c 'echo on > "$1"; exec sleep 1000' x "$1"`)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("told to")
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := os.ReadFile(fifo); err != nil { // blocks until the child no longer has it open
			t.Error(err)
		}
		cancel(cause)
	})
	err := r.Run(ctx, program.Command{Name: "mount.test", Args: []string{fifo}, Key: "k"})
	wg.Wait()
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	again, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := r.Run(again, program.Command{Name: "mount.test", Args: []string{"quick"}, Key: "k"}); err != nil {
		t.Errorf("after it was killed: %v", err)
	}
}

// A program that is to run to its end goes on when its caller has gone, and the next one for its key waits.
func TestEndedContextLeavesAProgramThatRunsToItsEnd(t *testing.T) {
	dir := t.TempDir()
	begun, gate, done := filepath.Join(dir, "begun"), filepath.Join(dir, "gate"), filepath.Join(dir, "done")
	open := fifos(t, gate, begun)
	r := runner(t, `[ "$1" = quick ] && exec cat "$2"; echo on > "$1"; read go < "$2"; echo whole > "$3"`)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := os.ReadFile(begun); err != nil {
			t.Error(err)
		}
		cancel()
	})
	err := r.Run(ctx, program.Command{Name: "mount.test", Args: []string{begun, gate, done}, Key: "k", ToEnd: true})
	wg.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := open.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	again, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := r.Run(again, program.Command{Name: "mount.test", Args: []string{"quick", done}, Key: "k"}); err != nil {
		t.Errorf("the next one for the key found nothing done: %v", err)
	}
}

// A mount helper may leave a server behind, such as rpc.statd, that keeps the helper's
// output open. The helper has ended all the same, and the server may write on.
func TestServerThatIsLeftBehindHoldsNothingUp(t *testing.T) {
	dir := t.TempDir()
	gate, out := filepath.Join(dir, "gate"), filepath.Join(dir, "out")
	open := fifos(t, gate, out)
	r := runner(t, `echo said; { read go < "$1"; echo more && echo alive > "$2"; } & exit 3`)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	err := r.Run(ctx, program.Command{Name: "mount.test", Args: []string{gate, out}})
	if err == nil || !strings.Contains(err.Error(), "exit status 3: said") {
		t.Fatalf("got %v", err)
	}
	if _, err := open.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "alive\n" {
		t.Errorf("the server: %q, %v", b, err)
	}
}

func TestOneProgramAtATimeForAKey(t *testing.T) {
	dir := t.TempDir()
	r := runner(t, `mkdir "$1/lock" || exit 1; : > "$1/ran.$$"; rmdir "$1/lock"`)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := r.Run(t.Context(), program.Command{Name: "mount.test", Args: []string{dir}, Key: "k"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ran, err := os.ReadDir(dir); err != nil || len(ran) != 20 {
		t.Errorf("got %d runs, %v, want 20", len(ran), err)
	}
}
