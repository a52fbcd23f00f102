package manager

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A volume that was begun as attached is reported as in use until it is unstaged, even if
// its CSIDriver no longer requires an attachment: the controller detaches a volume as soon as
// the Node's status does not list it.
//
// Items: B14.
// Faults: A182.
func TestWhatWasAttachedStaysInUseWhenItsDriverNeedsNoAttachmentAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.InUseHandshake = true })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^v"})
		mounted(t, l, "a")
		flipped := podWant("a", "v")
		flipped.Volumes[0].Spec.NoAttach = true
		l.SetPod(flipped)
		rest()
		attached := []state.InUse{{ID: "d^v", Name: "kubernetes.io/csi/d^v"}}
		equal(t, "while it is mounted", inUse(l), attached)
		l.MarkVolumesAsReportedInUse(nil)
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Unstage") {
				return answer(state.Failed, "NodeUnstageVolume", "Internal")
			}
			return fault{}
		})
		l.RemovePod("a")
		rest()
		equal(t, "until it is unstaged", inUse(l), attached)
		h.fails(nil)
		rest()
		equal(t, "in the end", inUse(l), nil)
	})
}

// A pod runs on a mount of an earlier attachment: nothing is done to the mount, containers may be started in the pod,
// and the status of the volume and the pod says so until it is gone. A restart changes nothing about that.
//
// Faults: A182.
func TestARunningPodOnAnEarlierAttachmentIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		attached := func(uid, device string) state.PodWant {
			p := podWant("a", "v")
			p.Volumes[0].Spec.Attachment, p.Volumes[0].Spec.PublishContext = uid, map[string]string{"device": device}
			return p
		}
		shown := func(l *life) string { s, _ := l.Pod("a"); return s.Volumes[0].Drift }
		l := live(t, h, d)
		l.up(h)
		l.SetPod(attached("1", "x"))
		mounted(t, l, "a")
		rest()
		if got := shown(l); got != "" {
			t.Errorf("with its own: %q", got)
		}
		before := len(h.calls())
		unread := attached("", "")
		unread.Volumes[0].Spec.PublishContext, unread.Volumes[0].Hold = nil, "not read"
		l.SetPod(unread)
		rest()
		if got := shown(l); got != "" {
			t.Errorf("while the attachment is not read: %q", got)
		}
		l.SetPod(attached("2", "y"))
		rest()
		if got := shown(l); !strings.Contains(got, "by UID 2 (its publish context differs)") {
			t.Errorf("with another: %q", got)
		}
		if err := l.Verify(t.Context(), "a"); err != nil {
			t.Errorf("a container may not be started: %v", err)
		}
		_ = l.stop()
		l = live(t, h, d, sources("s"))
		l.up(h)
		l.SetPod(attached("2", "y"))
		l.SourceSynced("s")
		rest()
		if got := shown(l); got == "" {
			t.Error("after a restart: nothing is shown")
		}
		equal(t, "calls", h.calls()[before:], nil)
	})
}

// A volume of a built-in kind that a cluster attaches is reported under the controller's name
// for it; volumes of other kinds and inline volumes are not. No call is made for it before it
// is reported, a report without it prevents new calls, and it is in use until it is unstaged.
//
// Items: A21, A23, A24, A25.
// Faults: A183.
func TestABuiltInKindThatIsAttachedTakesPartInTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.InUseHandshake = true })
		l.up(h)
		p := podWant("a", "disk", "built", "inline")
		p.Volumes[0].Spec.Builtin, p.Volumes[1].Spec.Builtin = true, true
		p.Volumes[0].Spec.AttachName = "kubernetes.io/iscsi/10.0.0.1:3260:iqn.x:0"
		p.Volumes[2].Spec.Ephemeral = true
		l.SetPod(p)
		rest()
		equal(t, "in use", inUse(l), []state.InUse{{ID: "d^disk", Name: "kubernetes.io/iscsi/10.0.0.1:3260:iqn.x:0"}})
		if h.took["Stage"] != 1 {
			t.Errorf("%d volumes were staged, want the other built-in one only", h.took["Stage"])
		}
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^disk"})
		mounted(t, l, "a")
		l.MarkVolumesAsReportedInUse(nil)
		q := podWant("b", "second")
		q.Volumes[0].Spec.Builtin, q.Volumes[0].Spec.AttachName = true, "kubernetes.io/fc/[50060e80167021aa]:1"
		l.SetPod(q)
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Unstage") {
				return answer(state.Failed, "NodeUnstageVolume", "Internal")
			}
			return fault{}
		})
		l.RemovePod("a")
		rest()
		both := []state.InUse{{ID: "d^disk", Name: "kubernetes.io/iscsi/10.0.0.1:3260:iqn.x:0"}, {ID: "d^second", Name: "kubernetes.io/fc/[50060e80167021aa]:1"}}
		equal(t, "in use before it is mounted, and until it is unstaged", inUse(l), both)
		if h.took["Stage"] != 2 {
			t.Errorf("%d volumes were staged, want none that is not reported", h.took["Stage"])
		}
		h.fails(nil)
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^second"})
		mounted(t, l, "b")
		rest()
		equal(t, "once the first is unstaged", inUse(l), both[1:])
	})
}
