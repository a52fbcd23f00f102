package events

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// waiting returns pods that wait for the same reason, with a volume each.
func waiting(pods int, reason string) server.Facts {
	f := server.Facts{Now: time.Unix(1_000_000, 0), Drivers: []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: "d"}, Up: true}}}
	for i := range pods {
		uid, id := state.PodUID(fmt.Sprint("pod-", i)), state.SharedID("d", fmt.Sprint(i))
		v := state.Volume{ID: id, Spec: &state.Spec{Driver: "d", Handle: fmt.Sprint(i)}}
		f.Volumes = append(f.Volumes, manager.VolumeStatus{Volume: v, Wanted: []state.PodUID{uid}, Held: plan.Held{Step: plan.Stage, Reason: reason}})
		f.Pods = append(f.Pods, manager.PodStatus{Pod: state.Pod{UID: uid}, Listed: true, Volumes: []manager.PodVolumeStatus{{
			Names: []string{"data"}, ID: id, Driver: "d", Step: plan.Stage, BlockedBy: reason,
		}}})
	}
	return f
}

// after looks again after a time, and wants this number of notices, and more to come or not.
func (w waits) after(t *testing.T, f *server.Facts, by time.Duration, told int, more bool) []notice {
	t.Helper()
	f.Now = f.Now.Add(by)
	got, later := w.look(*f, waitPatience)
	if len(got) != told || later != more {
		t.Errorf("told: %+v, more to come: %v; want %d, %v", got, later, told, more)
	}
	return got
}

// A wait is reported once it has lasted. It is reported again only if its reason is another
// one and has settled, or after the wait had ended.
//
// Items: A30, C23.
func TestAWaitIsToldOnceItHasLasted(t *testing.T) {
	w, f := waits{}, waiting(1, "waiting for a")
	v := &f.Pods[0].Volumes[0]
	w.after(t, &f, 0, 0, true)
	w.after(t, &f, waitPatience-time.Second, 0, true)
	v.BlockedBy = "waiting for b" // the wait goes on as before
	if got := w.after(t, &f, time.Second, 1, false); len(got) == 1 && (got[0].sentence != "waiting for b" || got[0].reason != "FailedMount" || !got[0].warning || got[0].pod != "pod-0") {
		t.Errorf("told: %+v", got[0])
	}
	w.after(t, &f, 24*time.Hour, 0, false)
	v.BlockedBy = "waiting for c"
	w.after(t, &f, time.Second, 1, false)
	for range 20 { // the reason never settles
		v.BlockedBy += "c"
		w.after(t, &f, time.Second, 0, true)
	}
	w.after(t, &f, waitPatience, 1, false)
	was := *v
	v.Step, v.BlockedBy, v.Mounted = plan.None, "", true
	w.after(t, &f, time.Second, 0, false)
	if len(w) > 0 {
		t.Errorf("remembered: %v", w)
	}
	*v = was
	w.after(t, &f, waitPatience, 0, true)
	w.after(t, &f, waitPatience, 1, false)
}

// A pod that waits for another pod to go, since the volume is that pod's alone or has its label, is told at the
// first look, as by the kubelet, and again only about another reason.
//
// Items: H10, K01.
func TestARefusalIsToldAtOnce(t *testing.T) {
	for _, code := range []plan.Code{plan.InUse, plan.OtherLabel} {
		w, f := waits{}, waiting(1, "it is pod a's")
		v := &f.Pods[0].Volumes[0]
		v.Code = code
		if got := w.after(t, &f, 0, 1, false); len(got) == 1 && (got[0].sentence != "it is pod a's" || got[0].reason != "FailedMount") {
			t.Errorf("%s: told: %+v", code, got)
		}
		w.after(t, &f, 24*time.Hour, 0, false)
		v.BlockedBy = "it is pod b's"
		w.after(t, &f, time.Second, 1, false)
		v.BlockedBy = "it is pod c's"
		w.after(t, &f, time.Second, 0, true)
	}
}

// A failed call is reported when it fails, and not as a wait in addition; that its driver
// then goes away is reported.
func TestAFailureIsNoWait(t *testing.T) {
	w, f := waits{}, waiting(1, "waiting to try again after a failure")
	f.Pods[0].Volumes[0].Retry = state.Retry{Attempts: 3, Call: "NodeStageVolume", Code: "Internal", Error: "no"}
	w.after(t, &f, 0, 0, false)
	w.after(t, &f, 24*time.Hour, 0, false)
	f.Drivers[0].Up, f.Drivers[0].Problem = false, "driver d is not registered: its socket is gone"
	w.after(t, &f, 0, 0, true)
	if got := w.after(t, &f, waitPatience, 1, false); len(got) == 1 && got[0].sentence != f.Drivers[0].Problem {
		t.Errorf("told: %+v", got)
	}
}

// 1,000 pods that wait for one thing are reported in portions.
func TestManyThatWaitAreNoStorm(t *testing.T) {
	const pods = 1000
	w, f := waits{}, waiting(pods, "waiting for a")
	w.after(t, &f, 0, 0, true)
	told := map[state.PodUID]bool{}
	f.Now = f.Now.Add(waitPatience)
	for i := range pods / maxReported {
		for _, n := range w.after(t, &f, lookPause, maxReported, i < pods/maxReported-1) {
			told[n.pod] = true
		}
	}
	w.after(t, &f, 24*time.Hour, 0, false)
	if len(told) != pods {
		t.Errorf("%d pods were told of", len(told))
	}
}

// A drifted mount is reported at once, and again when it has been restored; a mount that
// has gone does not count as restored.
func TestAMountThatIsOtherwiseIsToldOnceAndWhenThatIsOver(t *testing.T) {
	w, f := waits{}, waiting(2, "")
	for i := range f.Pods {
		f.Pods[i].Volumes[0].Mounted, f.Pods[i].Volumes[0].Step = true, plan.None
	}
	w.after(t, &f, 0, 0, false)
	v, other := &f.Pods[0].Volumes[0], &f.Pods[1].Volumes[0]
	why := plan.Fault{AfterError: true}.String()
	v.Drift, other.Drift = why, why
	for _, n := range w.after(t, &f, time.Second, 2, false) {
		if n.reason != "VolumeConditionAbnormal" || !n.warning || n.sentence != why {
			t.Errorf("told: %+v", n)
		}
	}
	w.after(t, &f, time.Hour, 0, false)
	v.Drift, other.Drift, other.Mounted = "", "", false
	if got := w.after(t, &f, time.Second, 1, false); len(got) == 1 && (got[0].reason != "VolumeConditionNormal" || got[0].warning || got[0].sentence != mended || got[0].pod != "pod-0") {
		t.Errorf("told: %+v", got)
	}
	w.after(t, &f, time.Hour, 0, false)
}

// A volume that waits after its pods have gone is reported too; a volume of two pods is
// reported for each of them.
func TestWhatWaitsWithoutAPodIsTold(t *testing.T) {
	w, f := waits{}, waiting(1, "waiting for a")
	f.Pods = append(f.Pods, f.Pods[0])
	f.Pods[1].Pod.UID = "pod-1"
	left := manager.VolumeStatus{Volume: state.Volume{ID: "d^left", Spec: &state.Spec{Driver: "d", Name: "pv"}}, Held: plan.Held{Step: plan.Unstage, Reason: "kept"}}
	f.Volumes = append(f.Volumes, left)
	w.after(t, &f, 0, 0, true)
	got := w.after(t, &f, waitPatience, 3, false)
	if text := fmt.Sprint(got); strings.Count(text, "waiting for a") != 2 || len(got) == 3 && (got[2].volume != "d^left" || got[2].pod != "" || got[2].reason != "FailedUnMount" || got[2].sentence != "kept") {
		t.Errorf("told: %+v", got)
	}
}
