package main

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/google/go-cmp/cmp"
)

func TestTimeline(t *testing.T) {
	at := time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)
	call := func(op plan.Kind, from, took time.Duration, failure string) server.EndedCall {
		return server.EndedCall{Volume: "d^v", Op: op, Began: at.Add(from), TookNanos: took, Error: failure}
	}
	got := timeline([]server.EndedCall{
		call(plan.Stage, 0, 10*time.Second, "no"),
		call(plan.Stage, 20*time.Second, 10*time.Second, ""),
		call(plan.Publish, 30*time.Second, 10*time.Second, ""),
	})
	const want = `from 2026-11-22 01:02:03.000, 40s in all
Stage     |=========x                              |      10s  v
Stage     |                   ===========          |      10s  v
Publish   |                             ===========|      10s  v
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if one := timeline([]server.EndedCall{call(plan.Stage, 0, 0, "")}); one == "" {
		t.Error("a call that took no time is not drawn")
	}
}

func TestTraceOfAPodAndOfAVolume(t *testing.T) {
	for _, args := range [][]string{{"trace", "pod", "web"}, {"trace", "volume", "d.example^x"}} {
		r := newRig(t, stuck(fixed))
		code := r.do(t, args...)
		out, errs := r.stdout.String(), r.stderr.String()
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != exitDone || len(lines)%2 != 1 || len(lines) < 3 || !strings.HasPrefix(lines[0], "BEGAN") ||
			!strings.HasSuffix(lines[1], "NodeStageVolume: Internal: no disk (outcome unknown)") || !strings.HasSuffix(lines[len(lines)-1], "OK") {
			t.Errorf("%q: exit code %d, %s\n%s", args, code, errs, out)
		}
	}
	r := newRig(t, stuck(fixed))
	if code := r.do(t, "trace", "pod", "nobody"); code != exitFailed || !strings.Contains(r.stderr.String(), "nobody") {
		t.Errorf("a pod that is not there: exit code %d, %s", code, r.stderr.String())
	}
}
