package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// terminal opens a pseudo terminal of 60 columns: other reads what the program writes to screen.
func terminal(t *testing.T) (screen, other *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = other.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}); err != nil {
		t.Fatal(err)
	}
	return screen, other
}

// On a terminal each volume has one line, which is redrawn and never wraps; in the end only
// the result remains.
func TestWaitIsLiveOnATerminal(t *testing.T) {
	r := newRig(t, stuck(fixed))
	screen, other := terminal(t)
	r.program.stdout = screen
	code := make(chan int, 1)
	go func() {
		code <- r.run(t.Context(), []string{"--socket", r.socket, "wait", "pod", "web", "--timeout=1h"})
		_, _ = io.WriteString(screen, "END\n")
	}()
	var lines []string
	in := bufio.NewScanner(other)
	for in.Scan() {
		line := strings.TrimSuffix(in.Text(), "\r")
		if line == "END" {
			break
		}
		lines = append(lines, line)
		if len(lines) == 2 {
			r.backend.show(mounted(fixed))
		}
	}
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, r.stderr.String())
	}
	for _, l := range lines {
		if n := len([]rune(strings.TrimPrefix(l, "\x1b[2A\x1b[J"))); n >= 60 {
			t.Errorf("%d columns would wrap: %q", n, l)
		}
	}
	first := "data: Stage: try 4 failed: NodeStageVolume answered Unavai…"
	if len(lines) < 3 || lines[0] != "cache: mounted at /root/pods/web/cache" || lines[1] != first {
		t.Errorf("first drawn:\n%q", lines)
	}
	last := lines[len(lines)-1]
	if want := "\x1b[2A\x1b[Jpod default/web: 2 volumes mounted (0s)"; last != want {
		t.Errorf("last %q, want %q", last, want)
	}
}

// watched runs the program until it has printed n lines, and calls at after each.
func watched(t *testing.T, r *rig, n int, at func(line int), args ...string) []string {
	t.Helper()
	in, out := io.Pipe()
	r.program.stdout = out
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	go func() {
		code <- r.run(ctx, append([]string{"--socket", r.socket}, args...))
		_ = out.Close()
	}()
	var lines []string
	for s := bufio.NewScanner(in); s.Scan(); {
		lines = append(lines, s.Text())
		at(len(lines))
		if len(lines) == n {
			cancel()
		}
	}
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, r.stderr.String())
	}
	return lines
}

func TestWatchedTableTellsChanges(t *testing.T) {
	r := newRig(t, mounted(fixed))
	got := watched(t, r, 4, func(line int) {
		switch line {
		case 2:
			r.backend.show(stuck(fixed))
		case 3:
			s := stuck(fixed)
			s.pods = s.pods[1:]
			r.backend.show(s)
		}
	}, "get", "pods", "--watch")
	golden(t, filepath.Join("testdata", "show", "watch.txt"), strings.Join(got, "\n")+"\n")
}

func TestWatchOfANameTellsNoOther(t *testing.T) {
	r := newRig(t, mounted(fixed))
	got := watched(t, r, 2, func(line int) {
		if line == 1 {
			r.backend.show(leaving(fixed))
		}
	}, "get", "volumes", "data", "-w", "-o", "json")
	var types []string
	for _, l := range got {
		types = append(types, fmt.Sprintf("%.14s %t", l, strings.Contains(l, `"vol-1"`)))
	}
	if diff := cmp.Diff([]string{`{"type":"set", true`, `{"type":"set", true`}, types); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A wait that is interrupted has failed, and says so.
func TestInterruptedWaitFails(t *testing.T) {
	r := newRig(t, stuck(fixed))
	in, out := io.Pipe()
	r.program.stdout = out
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- r.run(ctx, []string{"--socket", r.socket, "wait", "pod", "web"})
		_ = out.Close()
	}()
	s := bufio.NewScanner(in)
	s.Scan()
	cancel()
	for s.Scan() {
		continue
	}
	if got := <-code; got != exitFailed || r.stderr.String() != "csi-volmgr: interrupted\n" {
		t.Errorf("exit code %d, %q", got, r.stderr.String())
	}
}
