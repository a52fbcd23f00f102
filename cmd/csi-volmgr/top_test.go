package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestTopShowsWhatWaitsLongestFirst(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	volume := func(id string, since time.Duration, s server.VolumeStatus) server.VolumeStatus {
		s.Volume.ID, s.Volume.Spec, s.Since = state.VolumeID("d^"+id), &server.Spec{Driver: "d"}, now.Add(-since)
		return s
	}
	got, err := topText([]server.VolumeStatus{
		volume("rests", time.Hour, server.VolumeStatus{}),
		volume("called", 5*time.Second, server.VolumeStatus{Call: server.Op{Kind: plan.Stage}}),
		volume("held", time.Minute, server.VolumeStatus{Held: server.Held{Step: plan.Publish, Reason: "waiting for x"}}),
		volume("lost", 0, server.VolumeStatus{Quarantined: "checksum mismatch"}),
	}, []server.DriverStatus{{Name: "z", Problem: "it went"}, {Name: "d", Up: true, Volumes: 4, Calls: 1}}, view{now: now})
	const want = `4 volumes: 1 at rest, 1 with a call in flight, 1 waiting, 1 that cannot be read; 2 drivers: 1 up

DRIVER   UP    SINCE   VOLUMES   CALLS   PROBLEM
d        yes   -       4         1       -
z        no    -       0         0       it went

SINCE   VOLUME   DRIVER   STEP      WAITING FOR
60s     held     d        Publish   waiting for x
5s      called   d        Stage     the call's answer
0s      lost     d        -         checksum mismatch
`
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
}

func TestTopIsBounded(t *testing.T) {
	var many []server.VolumeStatus
	for i := range topLines + 5 {
		many = append(many, server.VolumeStatus{Volume: server.Volume{ID: state.VolumeID(fmt.Sprint("d^", i)), Spec: &server.Spec{}}, Call: server.Op{Kind: plan.Stage}})
	}
	got, err := topText(many, nil, view{})
	if err != nil || !strings.HasSuffix(got, "\nand 5 more\n") || strings.Count(got, "Stage") != topLines {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestTopOnceWhereThereIsNoTerminal(t *testing.T) {
	r := newRig(t, stuck(fixed))
	if code := r.do(t, "top"); code != exitDone || !strings.Contains(r.stdout.String(), "WAITING FOR") || strings.Contains(r.stdout.String(), "\x1b") {
		t.Errorf("exit code %d, %s\n%s", code, r.stderr.String(), r.stdout.String())
	}
}

// On a terminal the view shows changes as they happen, and never exceeds the screen.
func TestTopFollowsOnATerminal(t *testing.T) {
	r := newRig(t, stuck(fixed))
	screen, other := terminal(t)
	r.program.stdout = screen
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := make(chan int, 1)
	go func() {
		code <- r.run(ctx, []string{"--socket", r.socket, "top"})
		_ = screen.Close()
	}()
	in := bufio.NewScanner(other)
	shown := false
	for in.Scan() {
		line := strings.TrimSuffix(in.Text(), "\r")
		if visible := strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(line); len([]rune(visible)) > 60 {
			t.Errorf("wider than the terminal: %q", visible)
		}
		switch {
		case strings.Contains(line, "WAITING FOR") && !shown:
			shown = true
			r.backend.show(mounted(fixed))
		case shown && strings.Contains(line, "2 at rest"):
			cancel()
		}
	}
	if err := in.Err(); err != nil && !errors.Is(err, os.ErrClosed) && !strings.Contains(err.Error(), "input/output error") {
		t.Error(err)
	}
	if got := <-code; !shown || got != exitDone {
		t.Errorf("exit code %d, shown %v: %s", got, shown, r.stderr.String())
	}
}
