package faults

import (
	"testing"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// attachRequired: false of the CSIDriver object, though the driver could attach.
func TestNoAttachmentWhereTheObjectSaysSo(t *testing.T) {
	t.Parallel()
	no := false
	n := newPlace(t)
	n.object.noAttach = true
	n.begin(csistrict.Script{Attach: &no})
	n.apply(want{name: "data"}.String(), pod("web", fromClaim("data")))
	n.mounted("web")
	n.deletePods("web")
	n.deleteClaims("data")
	n.verdict()
	if got := n.begun("ControllerPublishVolume"); got != 0 {
		t.Errorf("attachments: got %d, want 0", got)
	}
}

// podInfoOnMount: false.
func TestNoPodInfoWhereTheObjectDoesNotAskForIt(t *testing.T) {
	t.Parallel()
	no := false
	n := newPlace(t)
	n.object.noPodInfo = true
	n.begin(csistrict.Script{PodInfo: &no})
	n.apply(want{name: "data"}.String(), pod("web", fromClaim("data")))
	n.mounted("web")
	n.deletePods("web")
	n.deleteClaims("data")
	n.verdict()
}

// N-45, N-47: the driver gives the volume one group. A pod that asks for
// another waits, is told why, and has its turn.
func TestGroupThatTheDriverGives(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{With: []string{"VOLUME_MOUNT_GROUP"}})
	n.apply(want{name: "data"}.String(), groupPod("one", "  securityContext: {fsGroup: 2000}\n", fromClaim("data")), pod("any", fromClaim("data")))
	n.mounted("one", "any")
	n.apply(groupPod("other", "  securityContext: {fsGroup: 3000}\n", fromClaim("data")))
	n.explained("pod", "other", "2000", "3000")
	n.deletePods("one", "any")
	n.mounted("other")
	n.deletePods("other")
	n.deleteClaims("data")
	n.verdict()
}

// N-89: a driver without a Controller service: what is written down as a
// PersistentVolume is mounted.
func TestDriverWithoutController(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{NoController: true})
	n.apply(pod("web", volume{name: "scratch", source: "csi: {driver: " + driverName + "}"}))
	n.mounted("web")
	n.deletePods("web")
	n.verdict()
	for _, call := range []string{"CreateVolume", "ControllerGetCapabilities", "ControllerPublishVolume"} {
		if got := n.begun(call); got != 0 {
			t.Errorf("%s: got %d calls, want 0", call, got)
		}
	}
}
