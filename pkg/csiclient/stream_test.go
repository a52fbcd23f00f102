package csiclient

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// GetMetadataAllocated sends one message, then fails with an error that quotes the secrets
// it was given.
func (f *fakeDriver) GetMetadataAllocated(req *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	f.mu.Lock()
	f.requests = append(f.requests, "GetMetadataAllocated")
	f.mu.Unlock()
	if err := stream.Send(&csi.GetMetadataAllocatedResponse{VolumeCapacityBytes: 1}); err != nil || req.GetSnapshotId() == "whole" {
		return err
	}
	if req.GetSnapshotId() == "hangs" {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return status.Errorf(codes.Internal, "asked with %v:\nlevel=ERROR", req.GetSecrets())
}

// A stream is logged once, without secrets, and its error has none; a request over CSI's limits is
// not sent; a caller that stops reading ends the stream by cancelling its context.
// Items: N-23, N-35, N-37.
func TestStreamsAreObserved(t *testing.T) {
	const canary = "CANARY"
	f := newFake()
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	must(t, err)
	n := connect(t, f, func(c *Config) { c.Metrics = m })
	client := csi.NewSnapshotMetadataClient(n.d.Conn())
	read := func(ctx context.Context, id string) error {
		stream, err := client.GetMetadataAllocated(ctx, &csi.GetMetadataAllocatedRequest{
			SnapshotId: id, Secrets: map[string]string{"password": canary},
		})
		for err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	if err := read(t.Context(), "whole"); !errors.Is(err, io.EOF) {
		t.Errorf("to its end: %v", err)
	}
	err = read(t.Context(), "fails")
	if e, ok := errors.AsType[*rpcError](err); !ok || !e.answered || status.Code(err) != codes.Internal || strings.ContainsAny(err.Error(), "\n") ||
		strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), stripped) {
		t.Errorf("one that fails: %v", err)
	}
	if err := read(t.Context(), strings.Repeat("x", state.MaxHandle+1)); err == nil || !strings.Contains(err.Error(), "snapshot_id: 1025 bytes") {
		t.Errorf("over the limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.GetMetadataAllocated(ctx, &csi.GetMetadataAllocatedRequest{SnapshotId: "hangs"})
	must(t, err)
	_, err = stream.Recv()
	must(t, err)
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("one that is given up: %v", err)
	}
	if f.calls("GetMetadataAllocated") != 3 {
		t.Errorf("%d calls, want 3", f.calls("GetMetadataAllocated"))
	}
	families, err := registry.Gather()
	must(t, err)
	measured := 0
	for _, m := range families[0].GetMetric() {
		if strings.Contains(m.String(), "GetMetadataAllocated") {
			measured += int(m.GetHistogram().GetSampleCount())
		}
	}
	if measured != 3 {
		t.Errorf("%d calls are measured, want 3", measured)
	}
	log := n.log.String()
	for _, code := range []string{"OK", "Internal", "Canceled"} {
		if strings.Count(log, "call=GetMetadataAllocated code="+code) != 1 {
			t.Errorf("the log does not have one line of code %s:\n%s", code, log)
		}
	}
	if strings.Contains(log, canary) {
		t.Errorf("the log has a secret:\n%s", log)
	}
}
