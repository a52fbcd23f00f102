package server

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// builtinKinds returns the kinds that csi-volmgr serves itself.
func builtinKinds() []state.DriverName {
	var kinds []state.DriverName
	for _, name := range []string{
		"empty-dir", "host-path", "local-volume", "nfs", "cephfs", "glusterfs", "iscsi", "fc", "image", "configmap", "secret", "downward-api", "projected",
	} {
		kinds = append(kinds, state.DriverName("kubernetes.io/"+name))
	}
	return kinds
}

// failing returns a pod's volume of a built-in kind with a failed call.
func failing(kind state.DriverName, op plan.Kind, r state.Retry) Facts {
	id := state.PodVolumeID(kind, webUID, "v")
	v := manager.VolumeStatus{Volume: state.Volume{
		ID: id, Spec: &state.Spec{Driver: kind, Builtin: true, Name: "v", Mode: state.Filesystem},
		Mounts: map[state.PodUID]state.Mount{webUID: {
			Fact: state.Fact{Phase: state.Entering, Failed: &r}, MountSpec: state.MountSpec{Pod: web, Names: []string{"v"}, Target: "/root/pods/web/v"},
		}},
	}, Wanted: []state.PodUID{webUID}}
	p := manager.PodVolumeStatus{Names: []string{"v"}, ID: id, Driver: kind, Retry: r, HostPath: "/root/pods/web/v"}
	held(&v, &p, plan.Held{Step: op, Pod: webUID, Reason: "waiting to try again after a failure", Until: r.NotBefore}, before(time.Second))
	return Facts{
		Pods:    []manager.PodStatus{{Pod: web, Listed: true, Volumes: []manager.PodVolumeStatus{p}}},
		Volumes: []manager.VolumeStatus{v}, Drivers: []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: kind, Builtin: true}, Up: true}}, Now: now,
	}
}

// Every failure of every built-in kind has advice that can be followed: none names a driver's log, since there is
// none. A failure that no retry can fix is stuck at once.
//
// Faults: A165.
func TestEveryFailureOfABuiltInKindHasAdvice(t *testing.T) {
	for _, kind := range builtinKinds() {
		for _, reason := range append(state.Reasons(), state.NoEffect, "") {
			for _, refused := range []bool{true, false} {
				for _, op := range []plan.Kind{plan.Stage, plan.Publish, plan.Republish, plan.Unpublish, plan.Expand} {
					for _, text := range []string{"it is so", "nothing is mounted"} {
						r := state.Retry{Attempts: 1, Since: before(time.Second), NotBefore: now.Add(28 * time.Second), Call: op.String(), Error: text, Reason: reason, Refused: refused}
						e, err := Explain(failing(kind, op, r), "pod", "default/web")
						if err != nil {
							t.Fatal(err)
						}
						said := e.String()
						if !strings.Contains(said, "you can") || strings.Contains(said, "log of driver") || strings.Contains(said, "in its log") || strings.Contains(said, "driver's own log") {
							t.Errorf("%s, %s for %q, refused %v: %s", kind, op, reason, refused, said)
						}
						want := Working
						if refused || !reason.Transient() {
							want = Stuck
						}
						if e.Verdict != want || want == Stuck && strings.Contains(said, "automatically in 28s") {
							t.Errorf("%s, %s for %q, refused %v: want %s: %s", kind, op, reason, refused, want, said)
						}
					}
				}
			}
		}
	}
}

// If a hostPath is not allowed, the advice names the flag.
//
// Faults: A165.
func TestAHostPathThatIsNotAllowedIsToldTheFlag(t *testing.T) {
	for _, kind := range []state.DriverName{"kubernetes.io/host-path", "kubernetes.io/local-volume"} {
		r := state.Retry{Attempts: 1, Since: before(time.Second), NotBefore: now.Add(28 * time.Second), Call: "Publish", Error: "not allowed", Reason: state.NotAllowed, Refused: true}
		if e, err := Explain(failing(kind, plan.Publish, r), "pod", "default/web"); err != nil || !strings.Contains(e.String(), "--host-path-allow") {
			t.Errorf("%s: %v, %s", kind, err, e)
		}
	}
}
