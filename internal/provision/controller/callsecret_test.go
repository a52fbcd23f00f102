package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// CreateSnapshot and DeleteSnapshot have the snapshotter's secret of the class, ListSnapshots that for lists. No snapshot
// is made without its secret, and none by a driver that cannot make any; both are said.
//
// Sidecars: SS-01, SS-04, SS-05, SS-08, SS-33.
func TestTheCallsOfASnapshotHaveItsSecrets(t *testing.T) {
	b := newBackend()
	b.looks, b.rpcs = 2, append(b.rpcs, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
	cut, list := map[string]string{"key": "cut"}, map[string]string{"key": "list"}
	b.secrets = map[string]map[string]string{"CreateSnapshot": cut, "ListSnapshots": list, "DeleteSnapshot": cut}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		s := testSnapshot("s", h.bound(testKey("a")).Handle)
		s.Class.Parameters = map[string]string{}
		for param, name := range map[string]string{snapshotterSecret: "cut", listSecret: "list"} {
			s.Class.Parameters[reserved+param+"-name"], s.Class.Parameters[reserved+param+"-namespace"] = name, "n"
		}
		h.snap(s)
		settleFor(time.Minute)
		if got := h.snapshot("s"); len(b.cuts) != 0 || !strings.Contains(got.Reason, "n/cut") {
			t.Errorf("without the secret: %+v", got)
		}
		h.secrets[state.SecretRef{Namespace: "n", Name: "cut"}] = cut
		h.secrets[state.SecretRef{Namespace: "n", Name: "list"}] = list
		h.snap(s) // so that what reads the secrets comes after this
		settleFor(time.Hour)
		if got := h.snapshot("s"); got.Phase != Ready {
			t.Errorf("made: %+v", got)
		}
		h.c.RemoveSnapshot(testKey("s"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); err != nil {
			t.Error(err)
		}
		settleFor(time.Hour)
		call := "ListSnapshots cut-2"
		wantCalls(t, b, "CreateVolume pvc-uid-a", "CreateSnapshot vol-1", call, call, "DeleteSnapshot cut-2")
	})
	b = newBackend()
	b.rpcs = b.rpcs[:len(b.rpcs)-1] // CREATE_DELETE_SNAPSHOT
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		settleFor(time.Minute)
		if got := h.snapshot("s"); got.Phase != Pending || !strings.Contains(got.Reason, "has no CREATE_DELETE_SNAPSHOT") {
			t.Errorf("by a driver without snapshots: %+v", got)
		}
	})
}

// Each call for a volume has the secret that the class names for it.
//
// Sidecars: SP-38, SR-08.
func TestEachCallOfAVolumeHasTheSecretOfItsClass(t *testing.T) {
	ref := func(name string) state.SecretRef { return state.SecretRef{Namespace: "n", Name: name} }
	r := record{Spec: spec{Secrets: secrets{Provision: ref("make"), Expand: ref("grow"), Modify: ref("modify")}}}
	for v, want := range map[verb]string{createVolume: "make", deleteVolume: "make", expandVolume: "grow", modifyVolume: "modify"} {
		if got := r.secretOf(v); got != ref(want) {
			t.Errorf("%s: %v, want %s", v, got, want)
		}
	}
}
