package plan

import (
	"hash/fnv"
	"strconv"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The first and the longest pause after failures. Each failure doubles the pause.
const (
	// retryFirst and retryMost are the kubelet's, which drivers are used to.
	retryFirst = 500 * time.Millisecond
	retryMost  = 2 * time.Minute
	// refusedFirst and refusedMost pace calls whose request would have to change
	// (CSI 1.13 forbids retrying them blindly). They are repeated at all only because
	// the world around a request may change unnoticed.
	refusedFirst = 30 * time.Second
	refusedMost  = 10 * time.Minute
)

// backoff returns the pacing after another failure. The pause has a jitter of up to a
// tenth that depends only on volume, call and attempt.
func backoff(r state.Retry, id state.VolumeID, op Op, err *state.CallError, now time.Time) state.Retry {
	least, most := retryFirst, retryMost
	if err.Outcome == state.Refused {
		least, most = refusedFirst, refusedMost
	}
	pause := min(least<<min(r.Attempts, 16), most)
	h := fnv.New32a()
	// a hash's Write never fails
	_, _ = h.Write([]byte(string(id) + "\x00" + op.String() + "\x00" + strconv.Itoa(r.Attempts)))
	pause += pause / 1000 * time.Duration(h.Sum32()%100)

	if r.Attempts == 0 {
		r.Since = now
	}
	if r.Here.IsZero() {
		r.Here = now
	}
	r.Attempts++
	r.Step = op.Step
	r.Final = err.Outcome == state.Final
	r.NotBefore = now.Add(pause)
	r.First = firstError(r, err)
	r.Unanswered = err.Unanswered
	r.Refused, r.Reason, r.Stray = err.Outcome == state.Refused, err.Reason, err.Stray
	r.Call, r.Code, r.Error = err.Call, err.Code, err.Err.Error()
	return r
}

// firstError returns the error from before the driver began to answer that an earlier call is
// still running; "" if it does not answer that now.
func firstError(r state.Retry, now *state.CallError) string {
	switch {
	case !state.CodeOf(now.Call, now.Code).Earlier:
		return ""
	case state.CodeOf(r.Call, r.Code).Earlier || r.Error == "":
		return r.First
	case r.Code == "":
		return r.Error
	default:
		return r.Code + ": " + r.Error
	}
}

// Reset returns v with every pause ended, after an event that may have cured the
// failures: the driver came back, the wish or a secret changed, or an operator asked.
// The description of the failures stays, for people. An expansion whose failure is
// final is not retried; see [RetryExpand].
func Reset(v state.Volume) state.Volume {
	ready := func(failed *state.Retry) *state.Retry {
		if failed == nil {
			return nil
		}
		r := *failed
		r.NotBefore, r.Final = time.Time{}, false
		return &r
	}
	v.Attach.Failed, v.Stage.Failed = ready(v.Attach.Failed), ready(v.Stage.Failed)
	if v.ExpandFailed != nil && !v.ExpandFailed.Final {
		v.ExpandFailed = ready(v.ExpandFailed)
	}
	for pod, m := range v.Mounts {
		if m.Failed != nil {
			m.Failed = ready(m.Failed)
			v.Mounts = withMount(v.Mounts, pod, m)
		}
	}
	return v
}

// RetryExpand lets an expansion whose failure was final be retried after its pause, because
// the claim asks for this size again or for another one, or because an operator asks.
func RetryExpand(v state.Volume) state.Volume {
	return retryExpandIf(v, func(*state.Retry) bool { return true })
}

// RetryExpandOnNewDriver is RetryExpand for a driver that is a new process. An expansion
// that was refused because the volume is in use would be refused again, so it waits until
// the volume is staged again (CSI 1.13, NodeExpandVolume: FAILED_PRECONDITION).
func RetryExpandOnNewDriver(v state.Volume) state.Volume {
	return retryExpandIf(v, func(r *state.Retry) bool { return !state.CodeOf(r.Call, r.Code).Conflict })
}

func retryExpandIf(v state.Volume, may func(*state.Retry) bool) state.Volume {
	if v.ExpandFailed != nil && may(v.ExpandFailed) {
		r := *v.ExpandFailed
		r.Final = false
		v.ExpandFailed = &r
	}
	return v
}
