package health

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// judge is a driver that reports the health of volumes. Its fields are set before the first call.
type judge struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	stats, health error
	asked         []*csi.NodeGetVolumeHealthRequest // by one test, one call after another
}

func (j *judge) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "judge.example.com", VendorVersion: "1"}, nil
}

func (j *judge) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (j *judge) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (j *judge) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "n"}, nil
}

func (j *judge) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	} {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (j *judge) NodeGetVolumeStats(context.Context, *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 9, Used: 4, Available: 5}}}, j.stats
}

func (j *judge) NodeGetVolumeHealth(_ context.Context, r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	j.asked = append(j.asked, r)
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{
		VolumeId: r.GetVolumeId(), HealthStatuses: []*csi.VolumeHealth_VolumeHealthEntry{{Status: csi.VolumeHealthErrorType_INACCESSIBLE, Reason: "NoPath"}},
	}}, j.health
}

// serve starts the driver, and returns the connection to it.
func (j *judge) serve(t *testing.T) *csiclient.Driver {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, j)
	csi.RegisterNodeServer(s, j)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	d, err := csiclient.Dial(t.Context(), csiclient.Config{Name: "judge.example.com", Endpoint: socket, Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

type volumes []manager.VolumeStatus

func (l volumes) EachVolume(yield func(manager.VolumeStatus) bool) {
	for _, v := range l {
		if !yield(v) {
			return
		}
	}
}

func (l volumes) Volume(id state.VolumeID) (manager.VolumeStatus, bool) {
	for _, v := range l {
		if v.Volume.ID == id {
			return v, true
		}
	}
	return manager.VolumeStatus{}, false
}

// ask asks everything that applies to the one volume.
func ask(t *testing.T, d *csiclient.Driver, v state.Volume) (r stats.Report, subjects int, err error) {
	t.Helper()
	v.ID, v.Needs.Stage = "judge.example.com^vol", true
	v.Spec = &state.Spec{Driver: "judge.example.com", Handle: "vol", Name: "pv", Mode: state.Filesystem, StagePath: "/stage"}
	a := &Asker{
		Volumes: volumes{{Volume: v}}, Mounts: watch.NewMounts(watch.MountsConfig{}), Controller: desk{},
		Drivers: func() map[state.DriverName]*csiclient.Driver {
			return map[state.DriverName]*csiclient.Driver{"judge.example.com": d}
		},
	}
	for s := range a.Subjects {
		subjects++
		if q, ok := a.Question(s); ok && s.Watched {
			r, err = q.Ask(t.Context())
		}
	}
	return r, subjects, err
}

// A driver that reports health is asked about each volume that was tried, even if no pod has it yet: there the
// answer is needed most. CSI 1.13 NodeGetVolumeHealth has the paths of an attempt.
//
// Items: N-84, N-80, Q06.
func TestAVolumeThatWasTriedIsAskedFor(t *testing.T) {
	at := func(p state.Phase) map[state.PodUID]state.Mount {
		return map[state.PodUID]state.Mount{"pod": {Fact: state.Fact{Phase: p}, MountSpec: state.MountSpec{Target: "/target"}}}
	}
	for _, c := range []struct {
		what             string
		stage            state.Phase
		mounts           map[state.PodUID]state.Mount
		asked            bool
		published, stats string
	}{
		{"nothing was tried", state.Absent, nil, false, "", ""},
		{"its stage fails", state.Entering, nil, true, "", ""},
		{"its publish fails", state.Present, at(state.Entering), true, "/target", ""},
		{"a pod has it", state.Present, at(state.Present), true, "/target", "measured"},
		{"its unpublish fails", state.Present, at(state.Leaving), true, "/target", ""},
	} {
		j := &judge{}
		r, subjects, err := ask(t, j.serve(t), state.Volume{Stage: state.Fact{Phase: c.stage}, Mounts: c.mounts})
		if err != nil || (subjects == 1) != c.asked || (len(j.asked) == 1) != c.asked {
			t.Errorf("%s: %d subjects, asked %d times, %v", c.what, subjects, len(j.asked), err)
			continue
		}
		if !c.asked {
			continue
		}
		if q := j.asked[0]; q.GetVolumeId() != "vol" || q.GetVolumePublishPath() != c.published || q.GetStagingTargetPath() != "/stage" {
			t.Errorf("%s: asked %v", c.what, q)
		}
		if !r.Diagnosed || len(r.Conditions) != 1 || r.Measured != (c.stats != "") {
			t.Errorf("%s: %+v", c.what, r)
		}
	}
}

// NodeGetVolumeStats and NodeGetVolumeHealth are two calls: if one fails, the answer of the other still counts.
func TestOneCallTellsWhatTheOtherCannot(t *testing.T) {
	has := state.Volume{Stage: state.Fact{Phase: state.Present}, Mounts: map[state.PodUID]state.Mount{
		"pod": {Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Target: "/target"}},
	}}
	stale, broken := status.Error(codes.Internal, "stale file handle"), status.Error(codes.Internal, "no array")
	for _, c := range []struct {
		stats, health    error
		measured, judged bool
		conditions       int
		says             []string
	}{
		{nil, nil, true, true, 1, nil},
		{stale, nil, false, true, 1, []string{"stale file handle"}},
		{nil, broken, true, false, 0, []string{"no array"}},
		{stale, broken, false, false, 0, []string{"stale file handle", "no array"}},
	} {
		r, _, err := ask(t, (&judge{stats: c.stats, health: c.health}).serve(t), has)
		if r.Measured != c.measured || r.Diagnosed != c.judged || len(r.Conditions) != c.conditions || (err != nil) != (len(c.says) > 0) {
			t.Errorf("stats %v, health %v: %+v, %v", c.stats, c.health, r, err)
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("stats %v, health %v: %v", c.stats, c.health, err)
			}
		}
	}
}
