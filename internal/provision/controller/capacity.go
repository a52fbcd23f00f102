package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// askCapacity adds the driver's free capacity to the error of a CreateVolume that failed because of
// its size, so that a person knows which size would fit (CSI 1.13 GetCapacity). The answer decides
// nothing, so its failure is ignored.
func askCapacity(ctx context.Context, k call, failed *state.CallError) {
	short := failed.Code == codes.OutOfRange.String() || failed.Code == codes.ResourceExhausted.String()
	if k.op.verb != createVolume || !short || !k.caps.Capacity {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	wanted, err := capabilities(k.op.spec, k.caps.MultiWriter)
	if err != nil {
		return
	}
	req := &csi.GetCapacityRequest{VolumeCapabilities: wanted, Parameters: k.op.spec.Parameters}
	if len(k.op.spec.Topology) > 0 {
		req.AccessibleTopology = &csi.Topology{Segments: k.op.spec.Topology}
	}
	answer, err := csi.NewControllerClient(k.driver.Conn).GetCapacity(ctx, req)
	if err != nil {
		return
	}
	text := fmt.Sprintf("it asks for %d bytes, and the driver says that %d are available", k.op.spec.SizeBytes,
		max(answer.GetAvailableCapacity(), 0))
	if most := answer.GetMaximumVolumeSize(); most != nil {
		text += fmt.Sprintf(", for one volume %d at most", most.GetValue())
	}
	failed.Err = fmt.Errorf("%w; %s", failed.Err, text)
}
