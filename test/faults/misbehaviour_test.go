package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// bad returns a fault in every call named call for the volumes of class "bad".
func bad(call string, f csistrict.Fault) csistrict.Fault {
	f.ID, f.Call, f.Volume = "bad", call, "bad"
	return f
}

// newBadNode makes a node with a class "bad". The faults are for its volumes.
func newBadNode(t *testing.T, s csistrict.Script) *node {
	t.Helper()
	n := newNode(t, s)
	n.Apply(n.class("bad", "bad"), want{name: "bad", class: "bad"}.String())
	return n
}

// good mounts and deletes a pod with a volume of its own, which the faults of other volumes
// must not affect.
func (n *node) good() {
	n.T.Helper()
	n.Apply(want{name: "good"}.String(), harness.Pod("good", fromClaim("good")))
	n.Mounted("good")
	n.DeletePods("good")
}

// heal ends all faults and restarts the driver, so that calls are repeated without a pause.
func (n *node) heal() {
	n.T.Helper()
	n.fault(csistrict.Fault{ID: "bad"})
	n.driver.Crash()
}

// over deletes all pods and claims, and asks for the verdict.
func (n *node) over(pods ...string) {
	n.T.Helper()
	n.DeletePods(pods...)
	n.DeleteClaims("bad", "good")
	n.verdict()
}

// A call fails while a volume is being mounted: its pod waits and explain says why, and
// another pod's volume is mounted. Once the fault is over, the pod gets its volume.
// Items: N-29, N-33.
// Scenarios: U-26, U-27.
func TestFaultWhileAVolumeIsMade(t *testing.T) {
	t.Parallel()
	fail := func(c codes.Code, effect csistrict.Effect) csistrict.Fault {
		return csistrict.Fault{Code: uint32(c), Effect: effect, Message: "the array is on fire"}
	}
	for name, tc := range map[string]struct {
		call  string
		fault csistrict.Fault
		words []string
	}{
		"attach refused":                {"ControllerPublishVolume", fail(codes.PermissionDenied, csistrict.EffectNone), []string{"PermissionDenied", "the array is on fire"}},
		"A080 attach exhausted":         {"ControllerPublishVolume", fail(codes.ResourceExhausted, csistrict.EffectNone), []string{"ResourceExhausted", "the array is on fire"}},
		"stage fails":                   {"NodeStageVolume", fail(codes.Internal, csistrict.EffectNone), []string{"Internal", "the array is on fire"}},
		"stage fails with effect":       {"NodeStageVolume", fail(codes.Internal, ""), []string{"Internal", "the array is on fire"}},
		"A077 stage aborted":            {"NodeStageVolume", fail(codes.Aborted, csistrict.EffectNone), []string{"Aborted", "the array is on fire", "failed"}},
		"stage invalid":                 {"NodeStageVolume", fail(codes.InvalidArgument, ""), []string{"InvalidArgument", "the array is on fire"}},
		"stage unknown code":            {"NodeStageVolume", fail(codes.Code(77), csistrict.EffectNone), []string{"the array is on fire"}},
		"N-31 publish unimplemented":    {"NodePublishVolume", fail(codes.Unimplemented, csistrict.EffectNone), []string{"Unimplemented", "the array is on fire"}},
		"publish fails with effect":     {"NodePublishVolume", fail(codes.Unavailable, ""), []string{"Unavailable", "the array is on fire"}},
		"publish fails halfway":         {"NodePublishVolume", fail(codes.Internal, csistrict.EffectPartial), []string{"Internal", "the array is on fire"}},
		"publish lies":                  {"NodePublishVolume", csistrict.Fault{Effect: csistrict.EffectNone}, []string{"answered OK without the effect"}},
		"publish lies with a directory": {"NodePublishVolume", csistrict.Fault{Effect: csistrict.EffectPartial}, []string{"answered OK without the effect", "nothing is mounted"}},
		"C19 publish answers garbage":   {"NodePublishVolume", csistrict.Fault{Garbage: csistrict.GarbageBytes}, []string{"NodePublishVolume"}},
		"C19 publish answers too much":  {"NodePublishVolume", csistrict.Fault{Garbage: csistrict.GarbageHuge}, []string{"NodePublishVolume", "larger"}},
		"publish hangs":                 {"NodePublishVolume", csistrict.Fault{Delay: 3_600_000, IgnoreCancel: true}, []string{"Publish", "call in flight"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{bad(tc.call, tc.fault)}})
			n.Apply(harness.Pod("bad", fromClaim("bad")))
			n.await(tc.call, 1)
			n.good()
			t.Log(n.explained("pod", "bad", append(tc.words, driverName)...))
			n.heal()
			n.Mounted("bad")
			n.over("bad")
		})
	}
}

// A call fails as above, but the pod is deleted while the fault lasts: the daemon undoes
// whatever the call may have done.
// Items: B12, C04, C08, N-26, N-57, N-70, N-64.
// Faults: A012, A013.
// Scenarios: U-28, U-29.
func TestFaultWhileAVolumeIsMadeForAPodThatGoes(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]csistrict.Fault{
		"A013 stage refused with effect": bad("NodeStageVolume", csistrict.Fault{Code: uint32(codes.InvalidArgument)}),
		"A012 stage late":                bad("NodeStageVolume", csistrict.Fault{Code: uint32(codes.DeadlineExceeded), Effect: csistrict.EffectLate, Late: 1500, Times: 1}),
		"stage in doubt":                 bad("NodeStageVolume", csistrict.Fault{Code: uint32(codes.Unavailable)}),
		"publish in doubt":               bad("NodePublishVolume", csistrict.Fault{Code: uint32(codes.DeadlineExceeded)}),
		"publish late":                   bad("NodePublishVolume", csistrict.Fault{Code: uint32(codes.DeadlineExceeded), Effect: csistrict.EffectLate, Late: 1500, Times: 1}),
		"attach in doubt":                bad("ControllerPublishVolume", csistrict.Fault{Code: uint32(codes.Unavailable)}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{f}})
			n.Apply(harness.Pod("bad", fromClaim("bad")))
			n.Eventually("the fault", func() bool { return n.count(csistrict.EventEnd, f.Call) > 0 })
			n.Remove("bad")
			n.good()
			n.Unmounted("bad")
			n.NoVolumes()
			n.DeleteClaims("bad", "good")
			n.verdict()
		})
	}
}

// The driver or the connection breaks in the middle of a call: the daemon repeats the same
// call, and nothing is made twice.
// Items: N-57, N-59, N-70.
func TestDriverBreaksInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		for name, f := range map[string]csistrict.Fault{
			"before": {Crash: csistrict.CrashBefore, Times: 1},
			"after":  {Crash: csistrict.CrashAfter, Times: 1},
			"drops":  {Drop: true, Times: 1},
		} {
			t.Run(call+" "+name, func(t *testing.T) {
				t.Parallel()
				n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{bad(call, f)}})
				n.Apply(harness.Pod("bad", fromClaim("bad")))
				n.Mounted("bad")
				if layers := n.layers(n.HostPath("bad", "data")); layers != 1 {
					t.Errorf("mounts at the target: got %d, want 1", layers)
				}
				n.DeletePods("bad")
				n.good()
				n.DeleteClaims("bad", "good")
				n.verdict()
				if n.count(csistrict.EventFault, call) != 1 {
					t.Error("the fault never happened")
				}
			})
		}
	}
}

// layers returns how many mounts are stacked at path.
func (n *node) layers(path string) (layers int) {
	for _, m := range n.Mounts() {
		if m == path {
			layers++
		}
	}
	return layers
}

// A call fails while a volume is being removed: the daemon repeats it until its outcome is
// certain. Another volume's pod comes and goes meanwhile, and a pod that wants this volume
// gets it afterwards (N-52, N-62).
// Items: C13, C14, C16, N-52, N-62, N-73.
// Faults: A009, A011, A032, A033.
// Scenarios: U-31, U-32.
func TestFaultWhileAVolumeIsTakenAway(t *testing.T) {
	t.Parallel()
	fail := func(c codes.Code, effect csistrict.Effect) csistrict.Fault {
		return csistrict.Fault{Code: uint32(c), Effect: effect, Message: "the array is on fire"}
	}
	for name, tc := range map[string]struct {
		call  string
		fault csistrict.Fault
		words []string
	}{
		"unpublish fails":                 {"NodeUnpublishVolume", fail(codes.Internal, csistrict.EffectNone), []string{"Internal", "the array is on fire"}},
		"A032 unpublish lies":             {"NodeUnpublishVolume", csistrict.Fault{Effect: csistrict.EffectNone}, []string{"answered OK without the effect", "still a mount point"}},
		"A033 unstage lies":               {"NodeUnstageVolume", csistrict.Fault{Effect: csistrict.EffectNone}, []string{"answered OK without the effect", "still a mount point"}},
		"A009 unstage fails with effect":  {"NodeUnstageVolume", fail(codes.DeadlineExceeded, ""), []string{"DeadlineExceeded", "the array is on fire"}},
		"A011 unstage fails again":        {"NodeUnstageVolume", fail(codes.Internal, ""), []string{"Internal", "the array is on fire"}},
		"detach fails":                    {"ControllerUnpublishVolume", fail(codes.Internal, csistrict.EffectNone), []string{"Internal", "the array is on fire"}},
		"C19 unstage answers garbage":     {"NodeUnstageVolume", csistrict.Fault{Garbage: csistrict.GarbageBytes}, []string{"NodeUnstageVolume"}},
		"unstage refuses what it knows":   {"NodeUnstageVolume", fail(codes.InvalidArgument, csistrict.EffectNone), []string{"InvalidArgument", "the array is on fire"}},
		"unpublish refuses what it knows": {"NodeUnpublishVolume", fail(codes.InvalidArgument, csistrict.EffectNone), []string{"InvalidArgument", "the array is on fire"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{bad(tc.call, tc.fault)}})
			n.Apply(harness.Pod("bad", fromClaim("bad")))
			n.Mounted("bad")
			n.write(filepath.Join(n.HostPath("bad", "data"), "f"), "kept")
			n.Remove("bad")
			n.await(tc.call, 1)
			n.Apply(harness.Pod("next", fromClaim("bad")))
			n.good()
			about := "next"
			if tc.call == "NodeUnpublishVolume" {
				about = "bad"
			}
			t.Log(n.explained("pod", about, append(tc.words, driverName)...))
			n.heal()
			n.Mounted("next")
			n.wantFile(filepath.Join(n.HostPath("next", "data"), "f"), "kept")
			n.over("next")
		})
	}
}

// A010: Unstage runs for long after its caller gave up.
// Items: N-52.
// Faults: A010.
func TestUnstageThatTakesLongIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{bad("NodeUnstageVolume", csistrict.Fault{Delay: 2000, IgnoreCancel: true, Times: 1})}})
	n.Apply(harness.Pod("bad", fromClaim("bad")))
	n.Mounted("bad")
	n.Remove("bad")
	n.await("NodeUnstageVolume", 1)
	n.Apply(harness.Pod("next", fromClaim("bad")))
	n.good()
	n.explained("pod", "next", "Unstage")
	n.Mounted("next")
	n.over("next")
}

// A031: the driver mounts twice; both mounts are removed, and the volume's content stays.
// Faults: A031.
func TestDoubleMountIsTakenAway(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"NodeStageVolume", "NodePublishVolume"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{bad(call, csistrict.Fault{Effect: csistrict.EffectDouble, Times: 1})}})
			n.Apply(harness.Pod("bad", fromClaim("bad")))
			n.Mounted("bad")
			n.write(filepath.Join(n.HostPath("bad", "data"), "f"), "kept")
			n.DeletePods("bad")
			n.good()
			n.Apply(harness.Pod("next", fromClaim("bad")))
			n.Mounted("next")
			n.wantFile(filepath.Join(n.HostPath("next", "data"), "f"), "kept")
			n.over("next")
		})
	}
}

// A082, C19: what the driver mounts elsewhere does not become the pod's volume, and
// csi-volmgr touches nothing there.
// Attacks: C19.
func TestMountElsewhereIsNotTheVolume(t *testing.T) {
	t.Parallel()
	for _, effect := range []csistrict.Effect{csistrict.EffectForeign, csistrict.EffectSymlink} {
		t.Run(string(effect), func(t *testing.T) {
			t.Parallel()
			n := newBadNode(t, csistrict.Script{})
			elsewhere := filepath.Join(n.Dir, "elsewhere")
			if err := os.Mkdir(elsewhere, 0o755); err != nil {
				t.Fatal(err)
			}
			canary := filepath.Join(elsewhere, "canary")
			n.write(canary, "alive")
			n.fault(bad("NodePublishVolume", csistrict.Fault{Effect: effect, Path: elsewhere}))
			n.Apply(harness.Pod("bad", fromClaim("bad")))
			n.await("NodePublishVolume", 1)
			n.good()
			t.Log(n.explained("pod", "bad", "answered OK without the effect", "NodePublishVolume", driverName))
			n.DeletePods("bad")
			if effect == csistrict.EffectForeign {
				if err := unix.Unmount(elsewhere, unix.UMOUNT_NOFOLLOW); err != nil {
					t.Errorf("the foreign mount: %v", err)
				}
			}
			n.wantFile(canary, "alive")
			n.DeleteClaims("bad", "good")
			n.verdict()
		})
	}
}

// A078: if a driver cannot say what it can do, the daemon does not assume that it can do
// nothing.
// Items: C24.
// Faults: A078.
func TestUnknownAbilitiesAreNotNoAbilities(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			n := newPlace(t)
			n.play(csistrict.Script{Faults: []csistrict.Fault{{ID: "mute", Call: "NodeGetCapabilities", Code: uint32(code), Message: "not yet"}}})
			n.startDriver()
			n.start()
			n.Apply(n.class("class", ""), harness.Pod("web", volume{Name: "scratch", Source: "csi: {driver: " + driverName + "}"}))
			n.await("NodeGetCapabilities", 2)
			t.Log(n.explained("pod", "web", driverName, "not yet"))
			if got := n.begun("NodePublishVolume"); got != 0 {
				t.Errorf("publications by a driver that nothing is known of: %d", got)
			}
			n.fault(csistrict.Fault{ID: "mute"})
			n.Mounted("web")
			n.DeletePods("web")
			n.verdict()
		})
	}
}

// A080: the daemon ignores a volume limit that makes no sense.
// Items: N-91.
func TestSenselessLimitIsNone(t *testing.T) {
	t.Parallel()
	n := newBadNode(t, csistrict.Script{MaxVolumes: -1})
	n.Apply(harness.Pod("bad", fromClaim("bad")))
	n.Mounted("bad")
	n.good()
	n.over("bad")
}

// A driver returns with other capabilities: the daemon treats old volumes by the old ones
// and new volumes by the new ones.
func TestAbilitiesChangeWithARestart(t *testing.T) {
	t.Parallel()
	n := newBadNode(t, csistrict.Script{})
	n.Apply(harness.Pod("bad", fromClaim("bad")))
	n.Mounted("bad")
	n.play(csistrict.Script{Without: []string{"SINGLE_NODE_MULTI_WRITER", "EXPAND_VOLUME"}})
	asked := n.begun("NodeGetCapabilities")
	n.driver.Crash()
	n.await("NodeGetCapabilities", asked+1)
	n.good()
	n.over("bad")
}

// N-102: if the driver refuses an expansion for good, the daemon does not repeat it,
// explain says so, and the mounts stay intact.
// Items: N-102, I08.
// Sidecars: SR-04.
func TestRefusedExpansionIsNotRepeated(t *testing.T) {
	t.Parallel()
	n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{
		bad("NodeExpandVolume", csistrict.Fault{Code: uint32(codes.FailedPrecondition), Effect: csistrict.EffectNone, Message: "in use"}),
	}})
	n.Apply(harness.Pod("bad", fromClaim("bad")))
	n.Mounted("bad")
	n.Apply(want{name: "bad", class: "bad", size: "2Mi"}.String())
	n.await("NodeExpandVolume", 1)
	n.good()
	t.Log(n.explained("pod", "bad", "NodeExpandVolume", "FailedPrecondition", "in use"))
	n.write(filepath.Join(n.HostPath("bad", "data"), "f"), "alive")
	n.Apply(harness.Pod("late", fromClaim("bad")))
	n.Mounted("late")
	if got := n.begun("NodeExpandVolume"); got != 1 {
		t.Errorf("expansions: got %d, want 1", got)
	}
	n.DeletePods("late")
	n.over("bad")
}

// Many volumes of one driver, some with each kind of fault, all settle.
func TestManyVolumesSettleWhateverTheDriverDoes(t *testing.T) {
	t.Parallel()
	const count = 20
	var faults []csistrict.Fault
	for i, call := range []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"} {
		faults = append(faults,
			csistrict.Fault{ID: call + "-in-doubt", Call: call, After: i, Times: 4, Code: uint32(codes.Unavailable)},
			csistrict.Fault{ID: call + "-fails", Call: call, After: 6 + i, Times: 2, Code: uint32(codes.FailedPrecondition), Effect: csistrict.EffectNone},
		)
	}
	n := newNode(t, csistrict.Script{Faults: faults})
	var pods, claims, docs []string
	for i := range count {
		pods, claims = append(pods, fmt.Sprintf("pod-%d", i)), append(claims, fmt.Sprintf("claim-%d", i))
		docs = append(docs, want{name: claims[i]}.String(), harness.Pod(pods[i], fromClaim(claims[i])))
	}
	n.Apply(docs...)
	n.Mounted(pods...)
	slices.Reverse(pods)
	n.DeletePods(pods...)
	n.DeleteClaims(claims...)
	n.verdict()
}

// A070, A073: if a driver is gone, explain names it for each pod that waits for it. The
// daemon finishes what it began once the driver is back.
// Items: C19, A20, J04.
// Faults: A070.
func TestDriverThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	n := newBadNode(t, csistrict.Script{})
	n.Apply(harness.Pod("bad", fromClaim("bad")), harness.Pod("stays", fromClaim("bad")))
	n.Mounted("bad", "stays")
	n.write(filepath.Join(n.HostPath("stays", "data"), "f"), "kept")
	n.driver.Kill()
	n.Remove("bad")
	n.Apply(harness.Pod("comes", fromClaim("bad")), harness.Pod("scratch", volume{Name: "empty", Source: "emptyDir: {}"}))
	n.Mounted("scratch")
	for _, pod := range []string{"bad", "comes"} {
		t.Log(n.explained("pod", pod, driverName, "not registered"))
	}
	n.wantFile(filepath.Join(n.HostPath("stays", "data"), "f"), "kept")
	n.startDriver()
	n.Mounted("comes")
	n.Unmounted("bad")
	n.wantFile(filepath.Join(n.HostPath("stays", "data"), "f"), "kept")
	n.DeletePods("stays", "comes", "scratch")
	n.DeleteClaims("bad")
	n.verdict()
}

// Stage answers that a device is full or a limit is reached. The daemon repeats a call that
// may succeed later with growing pauses (N-30, N-105).
// Items: N-105.
func TestRepetitionsGrowSeldom(t *testing.T) {
	t.Parallel()
	n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{
		bad("NodeStageVolume", csistrict.Fault{Code: uint32(codes.ResourceExhausted), Effect: csistrict.EffectNone, Message: "full"}),
	}})
	n.Apply(harness.Pod("bad", fromClaim("bad")))
	n.await("NodeStageVolume", 4)
	var pauses []int64
	var last csistrict.Event
	for _, e := range n.events("NodeStageVolume") {
		switch {
		case e.Event == csistrict.EventBegin && last.Event != "":
			pauses = append(pauses, e.Time.Sub(last.Time).Milliseconds())
		case e.Event == csistrict.EventEnd:
			last = e
		}
	}
	// They are at least half a second, one, and two; a busy machine makes them longer.
	if len(pauses) < 3 || pauses[0] < 480 || pauses[1] < 980 || pauses[2] < 1980 {
		t.Errorf("pauses in ms: %v, want at least 480, 980 and 1980", pauses)
	}
	n.heal()
	n.Mounted("bad")
	n.DeletePods("bad")
	n.DeleteClaims("bad")
	n.verdict()
}
