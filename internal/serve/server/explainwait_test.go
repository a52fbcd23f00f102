package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// waits returns a claim that waits for the cause, and a pod that waits for the claim.
func waits(c Cause) Facts {
	p := manager.PodVolumeStatus{
		Names: []string{"data"}, Claim: "default/data", Step: plan.Resolve, Cause: state.Cause(c),
		BlockedBy: "claim default/data: not bound yet: it waits",
	}
	f := one(manager.VolumeStatus{}, p, true)
	f.Volumes, f.Drivers = nil, nil
	f.Claims = []ClaimStatus{{Namespace: "default", Name: "data", Phase: "Pending", Reason: "it waits", Class: "fast", Cause: c}}
	if c.Code == state.CallFailed {
		f.Claims[0].Retry = RetryOf(failed("CreateVolume", "ResourceExhausted", "pool is full", 1))
		f.Claims[0].Retry.NotBefore = now.Add(3 * time.Second)
	}
	return f
}

// about returns what the code is about.
func about(code state.CauseCode) string {
	return map[state.CauseCode]string{
		state.DriverAway: "rbd.csi.ceph.com", state.DriverSilent: "rbd.csi.ceph.com", state.DriverUnable: "rbd.csi.ceph.com",
		state.NoController: "rbd.csi.ceph.com", state.ControllerAway: "rbd.csi.ceph.com",
		state.CallFailed: "rbd.csi.ceph.com", state.NoClass: "fast", state.BadClass: "fast", state.NoSnapshot: "shop/s",
		state.NoSource: "shop/other", state.NoSecret: "kube-system/key", state.HasPod: "pod default/db",
	}[code]
}

// Whatever a claim waits for, the claim, its pod and the volume say what happens next and what a person can do: the same.
func TestEveryCauseHasItsAdvice(t *testing.T) {
	var all strings.Builder
	for _, code := range CauseCodes() {
		f := waits(Cause{Code: code, Of: about(code)})
		var said []string
		for _, of := range []struct{ kind, name string }{{"pvc", "default/data"}, {"pod", "default/web"}, {"volume", "default/data"}} {
			e, err := Explain(f, of.kind, of.name)
			if err != nil {
				t.Fatal(err)
			}
			var lines []Line
			for _, l := range e.Lines {
				if l.Label == "next" || l.Label == "you can" {
					lines = append(lines, l)
				}
			}
			if len(lines) != 2 || strings.Contains(lines[1].Text, "{") && code != state.NoDefaultClass && code != state.NoClass {
				t.Errorf("%s: %s says %v", code, of.kind, lines)
				continue
			}
			said = append(said, fmt.Sprintf("%s: %s\n  next: %s\n  you can: %s\n", code, e.Verdict, lines[0].Text, lines[1].Text))
		}
		for _, s := range said {
			if s != said[0] {
				t.Errorf("the objects say different things:\n%s%s", said[0], s)
			}
		}
		if len(said) > 0 {
			all.WriteString(said[0])
		}
	}
	golden(t, filepath.Join("testdata", "explain", "causes.txt"), all.String())
}

// A claim without a class is given one that exists, or the command that makes one, of a driver that is up.
func TestNoDefaultClassIsAnsweredByWhatThereIs(t *testing.T) {
	for _, tt := range []struct {
		classes []string
		drivers []manager.DriverStatus
		want    string
	}{
		{[]string{"local"}, nil, "name a class that exists in the claim's spec.storageClassName, and apply the claim again: csi-volmgr apply -f FILE"},
		{nil, nil, `"provisioner": "local.csi-volmgr.dev"}' | csi-volmgr apply -f -`},
		{nil, []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: "kubernetes.io/nfs", Builtin: true}, Up: true}, {DriverInfo: manager.DriverInfo{Name: "down.example.com"}}, {DriverInfo: manager.DriverInfo{Name: nfs}, Up: true}}, `"provisioner": "nfs.example.com"}' | csi-volmgr apply -f -`},
	} {
		for _, cause := range []Cause{{Code: state.NoDefaultClass}, {Code: state.NoClass, Of: "fast"}} {
			f := waits(cause)
			f.Classes, f.Drivers = tt.classes, tt.drivers
			if got := f.adviceOn(f.Claims[0].Cause, f.Claims[0]); !strings.HasSuffix(got, tt.want) {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
		}
	}
}

// A claim whose call is in flight, and one whose driver is being asked, need no person.
func TestACallInFlightNeedsNoPerson(t *testing.T) {
	for _, c := range []ClaimStatus{{Phase: "Pending", Call: "CreateVolume", Reason: "CreateVolume is in flight"}, {Phase: "Pending"}} {
		f := waits(Cause{})
		c.Namespace, c.Name = "default", "data"
		f.Claims[0] = c
		e, err := Explain(f, "pvc", "default/data")
		if err != nil || strings.Contains(e.String(), "you can") || !strings.Contains(e.String(), "next ") {
			t.Errorf("%v, %s", err, e)
		}
	}
}

// The explanation of a driver that never was on the node names the claims that wait for it.
func TestADriverThatClaimsWaitForIsKnown(t *testing.T) {
	f := waits(Cause{Code: state.DriverAway, Of: "rbd.csi.ceph.com"})
	e, err := Explain(f, "driver", "rbd.csi.ceph.com")
	if err != nil || e.Verdict != Waiting || !strings.Contains(e.String(), "0 volumes on this node, and 1 claim") {
		t.Errorf("%v, %s", err, e)
	}
}

// Pods of other origins are ended by the words of their origin, wherever they are named.
func TestAPodEndsByTheWordsOfItsOrigin(t *testing.T) {
	f := deadMount()
	f.Ends = Ends{"default/db": "docker volume rm db"}
	f.Pods[1].Pod.Name, f.Pods[1].Pod.Namespace = "db", "default"
	for _, f := range []Facts{f, deadAndHeldBy(f)} {
		e, err := Explain(f, "pod", "default/"+f.Pods[0].Pod.Name)
		if err != nil || !strings.Contains(e.String(), "docker volume rm db") || strings.Contains(e.String(), "delete pod db") {
			t.Errorf("%v, %s", err, e)
		}
	}
	f.Claims = waits(Cause{Code: state.HasPod, Of: "pod default/db"}).Claims
	if got := f.adviceOn(f.Claims[0].Cause, f.Claims[0]); got != "end the use by a pod: docker volume rm db" {
		t.Errorf("got %s", got)
	}
}

// Who wants a volume is named with the words that end it, where they are not csi-volmgr's.
func TestAUserIsNamedWithItsWords(t *testing.T) {
	f := deadMount()
	f.Ends = Ends{"default/web": "kubectl delete pod web -n default"}
	f.Claims = []ClaimStatus{{Namespace: "default", Name: "data", Phase: "Bound", Volume: "pv-data"}}
	for _, kind := range []string{"volume", "pvc"} {
		e, err := Explain(f, kind, "default/data")
		if err != nil || !strings.Contains(e.String(), "pod default/web (ends by: kubectl delete pod web -n default)") {
			t.Errorf("%s: %v, %s", kind, err, e)
		}
	}
}

func deadAndHeldBy(f Facts) Facts {
	g := deadAndHeld()
	g.Ends = f.Ends
	return g
}

// A reason in the daemon's own words is whole on the page; one that may quote a driver is cut.
func TestThePageShowsReasonsInOurWords(t *testing.T) {
	const text = "StorageClass fast not found; there are: local"
	for code, want := range map[state.CauseCode]string{state.NoClass: text, state.CallFailed: "StorageClass fast not found; there are: " + ownersOnly} {
		f := waits(Cause{Code: code})
		f.Claims[0].Reason = text
		if got := f.public().Claims[0].Reason; got != want {
			t.Errorf("%s: got %s", code, got)
		}
	}
}

// The embedded driver's name does not say who serves it: one that was registered while this daemon ran has a process
// of its own, and is not started with the daemon.
func TestADriverThatWentIsStartedAsItWas(t *testing.T) {
	for generation, want := range map[int]string{0: "csi-volmgr run --local-driver", 1: "csi-volmgr explain driver " + string(EmbeddedDriver)} {
		f := Facts{Drivers: []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: EmbeddedDriver}, Generation: generation}}}
		if got := f.startDriver(EmbeddedDriver); !strings.HasSuffix(got, want) {
			t.Errorf("generation %d: %q, want %q at its end", generation, got, want)
		}
	}
}
