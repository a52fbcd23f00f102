package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// key returns the snapshot's "namespace/name".
func (s SnapshotStatus) key() string { return s.Namespace + "/" + s.Name }

// copying reports whether the driver has created the snapshot but it is not ready yet.
func (s SnapshotStatus) copying() bool {
	return s.Handle != "" && s.Content != "" && !s.Ready && s.Phase != "Deleting"
}

// failed reports whether the last call for the snapshot failed. An answer "not ready
// yet" is not a failure.
func (s SnapshotStatus) failed() bool { return s.Retry.Attempts > 0 && s.Retry.Call != "" }

// verdict returns the verdict on the controller's work for the snapshot.
func (s SnapshotStatus) verdict() string {
	switch {
	case s.Call != "":
		return Working
	case s.Refused, s.Doubted:
		return Stuck
	case s.Reason != "" && s.Until.IsZero(): // an event ends the wait, for example a registration
		return Waiting
	case s.failed() && (refused(s.Retry.retry()) || s.Retry.Attempts >= stuckAfter):
		return Stuck
	case s.failed():
		return Working
	case s.Reason != "", s.Phase == "Pending", s.Phase == "Deleting":
		return Waiting
	}
	return Fine
}

// notReady explains a snapshot or group snapshot that exists but is not ready.
const notReady = "it exists but is not ready: its driver still works on it, and no claim can be restored from it " +
	"until the driver reports that it is ready"

// explainSnapshot explains a snapshot ("namespace/name"): its claim, whether it exists,
// the call in flight or the last failure, and what ends its wait and when.
func (f Facts) explainSnapshot(e *Explanation) {
	i := slices.IndexFunc(f.Snapshots, func(s SnapshotStatus) bool { return s.key() == e.Name })
	if i < 0 {
		f.unknown(e)
		return
	}
	s := f.Snapshots[i]
	e.worsen(s.verdict())
	e.add("wanted", "%s", s.wanted())
	if s.Handle != "" && s.Content != "" {
		text := fmt.Sprintf("made as %s of driver %s", s.Handle, s.Driver)
		if !s.Created.IsZero() {
			text += ", " + f.ago(s.Created) + " ago"
		}
		if s.Ready {
			text += ", and ready: claims can be restored from it"
		}
		if s.Ready && s.RestoreBytes > 0 {
			text += ", of " + bytesOf(s.RestoreBytes) + " at least"
		}
		e.add("done", "%s", text)
	}
	if s.copying() {
		e.add("but", "%s", notReady)
	}
	f.explainSnapshotStep(e, s)
}

// asSnapshot returns the fields of the group snapshot that describe its steps as a
// SnapshotStatus.
func (g GroupSnapshotStatus) asSnapshot() SnapshotStatus {
	return SnapshotStatus{
		Namespace: g.Namespace, Name: g.Name, Phase: g.Phase, Reason: g.Reason, Call: g.Call, Refused: g.Refused,
		Doubted: g.Doubted,
		Content: g.Content, Handle: g.Content, Ready: g.Ready, Since: g.Since, Until: g.Until, Retry: g.Retry,
	}
}

// explainGroup explains a group snapshot ("namespace/name") like explainSnapshot.
func (f Facts) explainGroup(e *Explanation) {
	i := slices.IndexFunc(f.Groups, func(g GroupSnapshotStatus) bool { return g.key() == e.Name })
	if i < 0 {
		f.unknown(e)
		return
	}
	g := f.Groups[i]
	s := g.asSnapshot()
	e.worsen(s.verdict())
	what := "snapshots, of one moment, of the claims that its labels choose"
	if len(g.Claims) > 0 {
		what = "snapshots, of one moment, of claims " + strings.Join(g.Claims, ", ")
	}
	if g.Class != "" {
		what += ", of class " + g.Class
	}
	e.add("wanted", "%s", s.still(what))
	if g.Content != "" {
		text := "made by driver " + string(g.Driver) + ": " + strings.Join(g.Snapshots, ", ")
		if g.Ready {
			text += "; all are ready: claims can be restored from them"
		}
		e.add("done", "%s", text)
	}
	switch g.Consistency {
	case "crash":
		e.add("but", "the freeze ended early, or an answer was lost: it holds what a power cut leaves")
	case "apart":
		e.add("but", "the freeze ended early, or an answer was lost: its snapshots are not known to be of one moment")
	}
	if s.copying() {
		e.add("but", "%s", notReady)
	}
	f.explainSnapshotStep(e, s)
}

// wanted describes the snapshot that is wanted.
func (s SnapshotStatus) wanted() string {
	what := "a snapshot that its VolumeSnapshotContent names"
	if s.Claim != "" {
		what = "a snapshot of claim " + s.Namespace + "/" + s.Claim
	}
	if s.Class != "" {
		what += ", of class " + s.Class
	}
	return s.still(what)
}

// still adds to the description of a snapshot if it is no longer wanted.
func (s SnapshotStatus) still(what string) string {
	switch s.Phase {
	case "Deleting":
		return "nothing: it is being deleted (it was " + what + ")"
	case "Released":
		return "nothing: no source lists it, and it is kept (it was " + what + ")"
	}
	return what
}

// explainSnapshotStep adds the chain that starts at the call in flight or the wait.
func (f Facts) explainSnapshotStep(e *Explanation, s SnapshotStatus) {
	r := s.Retry.retry()
	var step []string
	switch {
	case s.Call != "":
		step = append(step, fmt.Sprintf("%s, call in flight for %s", s.Call, f.ago(s.Since)))
	case s.Reason != "":
		step = append(step, "waiting for "+f.ago(s.Since))
	default:
		return
	}
	if s.failed() {
		step = append(step, r.Call+" "+tries(r, f.Now))
	} else if s.copying() && r.Attempts > 0 {
		step = append(step, fmt.Sprintf("asked %s so far", count(r.Attempts, "time")))
	}
	e.add("step", "%s", strings.Join(step, "; "))
	switch {
	case s.failed() && s.Call == "" && !s.Refused && s.Until.IsZero(): // it waits for something other than the retry
		e.add("because", "%s", s.Reason)
		e.add("also", "%s", Failure(r))
	case s.failed():
		e.add("because", "%s", Failure(r))
	case s.Call == "":
		e.add("because", "%s", s.Reason)
	}
	switch {
	case s.Call != "":
		e.add("next", "the call ends or times out; a call without an answer is repeated")
	case s.Doubted:
		e.add("next", "%s", f.nextOn(Cause{Code: state.RecordsLost}, r))
		e.add("you can", "%s", adviceLost)
	case s.Refused:
		e.add("next", "retried only when the driver registers again, or when the snapshot, its class, its claim or the "+
			"claim's volume changes")
	case s.Until.After(f.Now):
		e.add("next", "retried automatically in %s", Age(f.Now, s.Until))
	default:
		e.add("next", "continues automatically as soon as what it waits for happens")
	}
	if s.Call == "" && (!s.Until.IsZero() || s.Refused && s.failed()) {
		e.add("you can", "retry it now: csi-volmgr retry %s %s -n %s", e.Kind, s.Name, s.Namespace)
	}
}
