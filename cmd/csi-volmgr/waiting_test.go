package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A deletion that waits says what it waits for, and then ends as usual.
//
// Faults: A153.
func TestADeletionSaysWhatItWaitsFor(t *testing.T) {
	r := newRig(t, stuck(fixed))
	r.backend.looked = make(chan struct{}, 1)
	r.program.patience = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // if the daemon says nothing, the deletion does not end
	defer cancel()
	code := r.run(ctx, []string{"--socket", r.socket, "delete", "pvc", "data"})
	if code != 0 || r.stdout.String() != "pvc/data deleted\n" {
		t.Errorf("code %d, %s", code, r.stdout.String())
	}
	if got := r.stderr.String(); !strings.HasPrefix(got, "waiting: pvc default/data: ") || !strings.Contains(got, "Stage, failed 4 times") {
		t.Errorf("said %q", got)
	}
}
