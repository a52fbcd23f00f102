package csiclient

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// NodeGetVolumeHealth returns the health that the test has set.
func (f *fakeDriver) NodeGetVolumeHealth(_ context.Context, r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{VolumeId: r.GetVolumeId(), HealthStatuses: f.health}}, nil
}

func (f *fakeDriver) NodeGetStorageHealth(context.Context, *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	return &csi.NodeGetStorageHealthResponse{BackendHealth: []*csi.NodeGetStorageHealthResponse_StorageBackendHealth{
		{Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: "NoPath", Message: "no path to the array"},
		{Status: csi.StorageHealthErrorType_STORAGE_DEGRADED, Reason: "Slow", VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		}},
	}}, nil
}

// Health returns what the driver says of this node: every kind is shown, one without a name
// as its number, and the client acts on none.
//
// Items: N-84, N-85, N-86, N-87.
func TestHealthIsWhatTheDriverSaysOfThisNode(t *testing.T) {
	f := newFake()
	f.caps = append(f.caps, csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH, csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	n := connect(t, f)
	v := n.volume(state.Filesystem)
	got, err := n.d.VolumeHealth(t.Context(), v, "pod-1")
	if err != nil || got != nil {
		t.Errorf("of a healthy volume: %v, %v", got, err)
	}
	f.mu.Lock()
	f.health = []*csi.VolumeHealth_VolumeHealthEntry{
		{Status: csi.VolumeHealthErrorType_INACCESSIBLE, Reason: "NoPath", Message: strings.Repeat("x", 5000)}, {Status: 99, Reason: "New"},
	}
	for range 50 {
		f.health = append(f.health, &csi.VolumeHealth_VolumeHealthEntry{Status: csi.VolumeHealthErrorType_DEGRADED})
	}
	f.mu.Unlock()
	got, err = n.d.VolumeHealth(t.Context(), v, "pod-1")
	must(t, err)
	if len(got) != maxConditions || got[0].Status != "INACCESSIBLE" || got[0].Reason != "NoPath" || len(got[0].Message) > maxMessage+20 || got[1] != (Condition{Status: "99", Reason: "New"}) {
		t.Errorf("got %d, first %.100v", len(got), got[:2])
	}
	storage, err := n.d.StorageHealth(t.Context())
	if err != nil || !slices.Equal(storage, []Condition{
		{Status: "STORAGE_UNREACHABLE", Reason: "NoPath", Message: "no path to the array"},
		{Status: "STORAGE_DEGRADED", Reason: "Slow", AccessMode: state.ReadWriteMany, VolumeMode: state.Block},
	}) {
		t.Errorf("%v, %v", storage, err)
	}
	// A driver without the capabilities is not asked.
	n = connect(t, newFake())
	_, volume := n.d.VolumeHealth(t.Context(), v, "pod-1")
	_, backend := n.d.StorageHealth(t.Context())
	if outcome(t, volume) != state.Final || outcome(t, backend) != state.Final || n.f.calls(nodeVolumeHealth)+n.f.calls(nodeStorageHealth) != 0 {
		t.Errorf("%v, %v", volume, backend)
	}
}

func TestAHealthRequestNamesThePathsOfTheVolume(t *testing.T) {
	v := sample()
	r, err := healthRequest(v, v.Mounts["pod-1"].Target)
	must(t, err)
	golden(t, "testdata/health_filesystem.json", r)
	if _, err := healthRequest(state.Volume{Spec: &state.Spec{}}, ""); err == nil {
		t.Error("a volume without a handle is asked for")
	}
	r, err = healthRequest(v, "")
	must(t, err)
	if r.GetVolumePublishPath() != "" || r.GetStagingTargetPath() == "" {
		t.Errorf("of a volume whose stage was tried: %v", r)
	}
}
