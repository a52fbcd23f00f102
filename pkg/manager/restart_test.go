package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// labelledPod is a pod that wants volume v mounted with a label.
func labelledPod(pod, label string) state.PodWant {
	p := podWant(pod, "v")
	p.Volumes[0].Mount.SELinuxLabel = label
	return p
}

// After a restart the manager knows the label that a volume is mounted with. A pod with the same
// label gets it without another stage, the status of a pod with another label names both at
// once, and neither costs the first pod a call.
//
// Items: E13.
func TestTheLabelOfAMountedVolumeSurvivesARestart(t *testing.T) {
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			l := live(t, h, d)
			l.up(h)
			l.SetPod(labelledPod("a", "u:object_r:t:s0:c1"))
			mounted(t, l, "a")
			rest()
			if !crash {
				_ = l.stop()
			}
			before := len(h.calls())
			l = live(t, h, d, sources("s"))
			l.up(h)
			l.SetPod(labelledPod("a", "u:object_r:t:s0:c1"))
			l.SetPod(labelledPod("same", "u:object_r:t:s0:c1"))
			l.SetPod(labelledPod("other", "u:object_r:t:s0:c2"))
			l.SourceSynced("s")
			mounted(t, l, "same")
			rest()
			if v, _ := l.Volume("d^v"); v.Volume.Spec.SELinuxLabel != "u:object_r:t:s0:c1" || !strings.Contains(v.Held.Reason, "conflicting SELinux labels") ||
				!strings.Contains(v.Held.Reason, "s0:c1") || !strings.Contains(v.Held.Reason, "s0:c2") || v.Held.Pod != "other" {
				t.Errorf("label %q, held %+v", v.Volume.Spec.SELinuxLabel, v.Held)
			}
			equal(t, "calls after the restart", h.calls()[before:], []string{"Publish d^v same"})
		})
	}
}

// After a restart the manager asks the cluster again about attachments. A mounted volume keeps
// the context that it was made with, a new one gets the current context, and whether a volume
// has to be attached at all is asked too.
//
// Items: E10.
func TestAttachmentComesFromTheClusterAfterARestart(t *testing.T) {
	attached := func(pod, vol, device string) state.PodWant {
		p := podWant(pod, vol)
		p.Volumes[0].Spec.PublishContext = map[string]string{"devicePath": device}
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(attached("a", "v", "/dev/one"))
		mounted(t, l, "a")
		h.fails(func(call string) fault { return answer(state.Failed, "NodeStageVolume", "Internal") })
		l.SetPod(attached("b", "w", "/dev/one"))
		rest()
		_ = l.stop()
		h.fails(nil)
		before := len(h.calls())
		l = live(t, h, d, sources("s"), func(c *Config) { c.InUseHandshake = true })
		l.up(h)
		held := attached("b", "w", "")
		held.Volumes[0].Hold = "waiting for VolumeAttachment csi-w"
		free := podWant("c", "x") // of a driver whose CSIDriver asks for no attachment now
		free.Volumes[0].Spec.NoAttach = true
		l.SetPod(attached("a", "v", "/dev/one"))
		l.SetPod(held)
		l.SetPod(free)
		l.SourceSynced("s") // before its pods: for a moment their mounts would not be wanted
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^v", "d^w", "d^x"})
		mounted(t, l, "c")
		rest()
		of := func(vol string) (calls []string) {
			for _, c := range h.calls()[before:] {
				if strings.Contains(c, vol) {
					calls = append(calls, c)
				}
			}
			return calls
		}
		equal(t, "calls for what needs no attachment", of("d^x"), []string{"Stage d^x", "Publish d^x c"})
		// A volume that was begun with another context is undone.
		equal(t, "calls for what is not attached", of("d^w"), []string{"Unstage d^w"})
		l.SetPod(attached("b", "w", "/dev/two"))
		mounted(t, l, "b")
		for vol, want := range map[state.VolumeID]string{"d^v": "/dev/one", "d^w": "/dev/two"} {
			if v, _ := l.Volume(vol); v.Volume.Spec.PublishContext["devicePath"] != want {
				t.Errorf("%s: publish context %v, want %s", vol, v.Volume.Spec.PublishContext, want)
			}
		}
		equal(t, "calls for what was there", of("d^v"), nil)
		equal(t, "calls once it is attached", of("d^w"), []string{"Unstage d^w", "Stage d^w", "Publish d^w b"})
	})
}

// A changed policy applies to new pods: a pod that has the volume keeps its mount, also across
// a restart, and its status says so.
//
// Items: G06.
func TestAChangedPolicyLeavesMountedPodsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		owned := func(pod string, o state.Ownership) state.PodWant {
			p := podWant(pod, "v")
			group := int64(2000)
			p.Volumes[0].Mount.FSGroup, p.Volumes[0].Mount.Ownership = &group, o
			return p
		}
		l := live(t, h, d)
		l.up(h)
		l.SetPod(owned("a", ""))
		mounted(t, l, "a")
		before := len(h.calls())
		l.SetPod(owned("a", state.OwnAlways))
		l.SetPod(owned("b", state.OwnAlways))
		mounted(t, l, "b")
		rest()
		_ = l.stop()
		l = live(t, h, d, sources("s"))
		l.up(h)
		l.SetPod(owned("a", state.OwnAlways))
		l.SetPod(owned("b", state.OwnAlways))
		l.SourceSynced("s")
		rest()
		equal(t, "calls", h.calls()[before:], []string{"Publish d^v b"})
		v := d.records(t)["d^v"]
		if v.Mounts["a"].Ownership != "" || v.Mounts["b"].Ownership != state.OwnAlways {
			t.Errorf("records: a %q, b %q", v.Mounts["a"].Ownership, v.Mounts["b"].Ownership)
		}
		if v, _ := l.Volume("d^v"); !strings.Contains(v.Held.Reason, "the pod now asks for a different mount") {
			t.Errorf("held: %+v", v.Held)
		}
	})
}

// Found counts the records at the start, those that could not be read, and the volumes whose
// mounts had changed.
//
// Items: E15, E08.
func TestWhatWasFoundAtTheStartIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		synctest.Wait()
		if got := l.Found(); got != (Found{}) {
			t.Errorf("of nothing: %+v", got)
		}
		l.up(h)
		l.SetPod(podWant("a", "v", "w", "x"))
		mounted(t, l, "a")
		rest()
		_ = l.stop()
		h.mu.Lock()
		delete(h.published, "/pods/a/w")
		h.mu.Unlock()
		unreadable := &torn{disk: d, ids: map[state.VolumeID]string{"d^y": "checksum"}}
		for boots, want := range map[string]Found{"boot-1": {4, 1, 1}, "boot-2": {4, 1, 3}} {
			l = live(t, h, d, boot(boots), sources("s"), func(c *Config) { c.Store = unreadable })
			synctest.Wait()
			if got := l.Found(); got != want {
				t.Errorf("%s: %+v, want %+v", boots, got, want)
			}
			l.up(h)
			l.SetPod(podWant("a", "v", "w", "x"))
			mounted(t, l, "a") // which makes the missing mount again
			if got := l.Found(); got != want {
				t.Errorf("%s, later: %+v, want %+v", boots, got, want)
			}
			_ = l.stop()
			h.mu.Lock()
			delete(h.published, "/pods/a/w")
			h.mu.Unlock()
			must(t, d.SetBootID(t.Context(), "boot-1"))
		}
	})
}

// torn is a disk on which some records cannot be read.
type torn struct {
	*disk
	ids map[state.VolumeID]string
}

func (d *torn) Load(ctx context.Context) (state.Loaded, error) {
	loaded, err := d.disk.Load(ctx)
	loaded.Quarantined = d.ids
	return loaded, err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A node is rebooted without warning, and 50 of its 150 pods are deleted meanwhile: the others
// get their volumes again, and the leftovers of the deleted ones are removed with one call each.
//
// Faults: A058.
func TestAfterAHardReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		name := func(i int) string { return fmt.Sprintf("p%03d", i) }
		l := live(t, h, d)
		l.up(h)
		for i := range 150 {
			l.SetPod(podWant(name(i), "v-"+name(i)))
		}
		for i := range 150 {
			mounted(t, l, name(i))
		}
		_ = l.stop()
		h.reboot()
		before := len(h.calls())
		l = live(t, h, d, boot("boot-2"), sources("s"))
		l.up(h)
		for i := range 100 {
			l.SetPod(podWant(name(i), "v-"+name(i)))
		}
		l.SourceSynced("s")
		for i := range 100 {
			mounted(t, l, name(i))
		}
		for i := 100; i < 150; i++ {
			gone(t, l, name(i))
		}
		rest()
		calls := h.calls()[before:]
		for i := range 150 {
			want := []string{
				"Stage d^v-" + name(i), "Unpublish d^v-" + name(i) + " " + name(i), "Publish d^v-" + name(i) + " " + name(i),
			}
			if i >= 100 {
				want = []string{"Unpublish d^v-" + name(i) + " " + name(i), "Unstage d^v-" + name(i)}
			}
			var got []string
			for _, c := range calls {
				if strings.Contains(c+" ", "d^v-"+name(i)+" ") {
					got = append(got, c)
				}
			}
			equal(t, name(i), got, want)
		}
	})
}

// reboot removes all mounts.
func (h *fakeNode) reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.staged)
	clear(h.published)
}
