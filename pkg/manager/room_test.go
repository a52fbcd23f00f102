package manager

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A driver's limit counts all of its volumes here, persistent and inline, also right after a
// restart and when many come at once. A pod without room says why, and gets its volume as soon
// as another one is gone.
//
// Items: J17, N-91.
func TestTheLimitIsForEphemeralAndPersistentVolumesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		begin := func() *life {
			l := live(t, h, d, sources("s"), func(c *Config) { c.HoldAtLimit = true })
			l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true, MaxVolumes: 3}, h)
			return l
		}
		inline := func(pod string) state.PodWant {
			p := podWant(pod, "tmp")
			p.Volumes[0].ID, p.Volumes[0].Spec.Ephemeral, p.Volumes[0].Spec.StagePath = state.PodVolumeID("d", state.PodUID(pod), "tmp"), true, ""
			return p
		}
		ready := func(l *life) (n int) {
			rest()
			for _, p := range l.Pods() {
				if p.Ready {
					n++
				} else if why := p.Volumes[0].BlockedBy; !strings.Contains(why, "driver d serves at most 3 volumes on this node") {
					t.Errorf("pod %s waits: %q", p.Pod.Name, why)
				}
			}
			if here := len(h.published); here != 3 {
				t.Errorf("%d volumes are here", here)
			}
			return n
		}
		l := begin()
		for i := range 4 {
			l.SetPod(inline(fmt.Sprint("inline", i)))
			l.SetPod(podWant(fmt.Sprint("claim", i), fmt.Sprint("v", i)))
		}
		l.SourceSynced("s")
		if n := ready(l); n != 3 {
			t.Errorf("%d pods are ready", n)
		}
		_ = l.stop()
		l = begin()
		for i := range 4 {
			l.SetPod(inline(fmt.Sprint("inline", i)))
			l.SetPod(podWant(fmt.Sprint("claim", i), fmt.Sprint("v", i)))
		}
		l.SourceSynced("s")
		if n := ready(l); n != 3 {
			t.Errorf("after a restart %d pods are ready", n)
		}
		for left := 8; left > 3; left-- {
			for _, p := range l.Pods() {
				if p.Ready {
					l.RemovePod(p.Pod.UID)
					break
				}
			}
			if n := ready(l); n != 3 {
				t.Errorf("of %d pods that are left, %d are ready", left-1, n)
			}
		}
		// Another pod of a volume that is already here needs no room.
		for id, v := range d.records(t) {
			if !v.Spec.Ephemeral {
				p := podWant("again", v.Spec.Handle)
				l.SetPod(p)
				mounted(t, l, "again")
				l.RemovePod("again")
				gone(t, l, "again")
				_ = id
				break
			}
		}
		l.SetPod(podWant("more", "more"))
		rest()
		l.DriverLimit("d", 4)
		mounted(t, l, "more")
	})
}

// In a cluster, where the scheduler counts, nothing is delayed here.
func TestALimitIsTheSchedulersToKeepInACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true, MaxVolumes: 1}, h)
		for _, pod := range []string{"a", "b"} {
			l.SetPod(podWant(pod, "v-"+pod))
			mounted(t, l, pod)
		}
	})
}

// A volume that is not accessible from here, by its affinity and the driver's topology, is not
// begun, and says why. Once the driver reports a matching topology, it is.
//
// Items: A30, N-14.
func TestAVolumeOutOfReachIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		up := func(zone string) {
			l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true, Topology: map[string]string{"zone": zone}}, h)
		}
		up("a")
		p := podWant("a", "v")
		p.Volumes[0].Topology = []map[string][]string{{"zone": {"b"}}}
		l.SetPod(p)
		rest()
		if s, _ := l.Pod("a"); len(h.calls()) != 0 || !strings.Contains(s.Volumes[0].BlockedBy, "it is at zone=b, and the driver reports that the node is at zone=a") {
			t.Errorf("calls %v, blocked by %q", h.calls(), s.Volumes[0].BlockedBy)
		}
		up("b")
		mounted(t, l, "a")
		up("a") // a mounted volume stays
		rest()
		equal(t, "calls", h.calls(), []string{"Stage d^v", "Publish d^v a"})
	})
}

// A volume that has to be attached is not begun if its driver does not attach it here: its
// context would be empty. Once it is attached, by a driver that does or according to a
// VolumeAttachment, it is made, and a mounted volume stays.
//
// Items: N-53.
// Faults: A157.
func TestAVolumeThatIsNotAttachedIsNotBegun(t *testing.T) {
	for name, attach := range map[string]func(l *life, h *fakeNode){
		"the driver attaches": func(l *life, h *fakeNode) {
			l.DriverUp(DriverInfo{Name: "d", Attach: true, Stage: true, MountsTarget: true}, h)
		},
		"a VolumeAttachment": func(l *life, _ *fakeNode) { l.SetPod(podWant("a", "v")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newFakeNode(t), newDisk()
				l := live(t, h, d)
				l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, h)
				p := podWant("a", "v")
				p.Volumes[0].Unattached = "not attached"
				l.SetPod(p)
				rest()
				if s, _ := l.Pod("a"); len(h.calls()) != 0 || s.Volumes[0].BlockedBy != "not attached" {
					t.Errorf("calls %v, blocked by %q", h.calls(), s.Volumes[0].BlockedBy)
				}
				attach(l, h)
				mounted(t, l, "a")
				l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, h)
				l.SetPod(p)
				rest()
				if s, _ := l.Pod("a"); !s.Ready {
					t.Errorf("mounted before, then %+v", s.Volumes[0])
				}
			})
		})
	}
}
