package controller

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// If a claim is too large, its reason says how much room there is, if the driver can tell. After another failure the
// controller does not ask.
func TestAClaimThatIsTooLargeSaysWhatThereIs(t *testing.T) {
	const says = "CreateVolume: OutOfRange: too large"
	for what, c := range map[string]struct {
		code codes.Code
		caps bool
		room *csi.GetCapacityResponse
		want string
	}{
		"told":           {codes.OutOfRange, true, &csi.GetCapacityResponse{AvailableCapacity: 7}, says + "; it asks for 1048576 bytes, and the driver says that 7 are available"},
		"told of one":    {codes.OutOfRange, true, &csi.GetCapacityResponse{AvailableCapacity: 7, MaximumVolumeSize: wrapperspb.Int64(3)}, says + "; it asks for 1048576 bytes, and the driver says that 7 are available, for one volume 3 at most"},
		"no answer":      {codes.OutOfRange, true, nil, says},
		"not able":       {codes.OutOfRange, false, &csi.GetCapacityResponse{}, says},
		"another reason": {codes.Internal, true, &csi.GetCapacityResponse{}, "CreateVolume: Internal: too large"},
	} {
		b := newBackend()
		b.room = c.room
		if c.caps {
			b.rpcs = append(b.rpcs, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
		}
		b.fault = onCall("CreateVolume", func(string, proto.Message) fault { return fault{before: status.Error(c.code, "too large")} })
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.up()
			h.set(testClaim("a", mib))
			if got := h.status(testKey("a")).Reason; got != c.want {
				t.Errorf("%s: %q, want %q", what, got, c.want)
			}
			if asked := slices.Contains(b.asked, "GetCapacity assd"); asked != (c.want != says && c.code == codes.OutOfRange) {
				t.Errorf("%s: asked %q", what, b.asked)
			}
		})
	}
}

// A request that the driver refuses for what it asks is rejected, until it asks for something else; one that fails for
// another reason, or after a call whose outcome is not known, is not.
//
// Sidecars: SP-19.
func TestWhichRequestsAreRejected(t *testing.T) {
	for code, want := range map[codes.Code]bool{
		codes.OutOfRange: true, codes.InvalidArgument: true, codes.PermissionDenied: false, codes.AlreadyExists: false,
		codes.ResourceExhausted: false, codes.Internal: false, codes.DeadlineExceeded: false,
	} {
		b := newBackend()
		b.fault = onCall("CreateVolume", func(string, proto.Message) fault { return fault{before: status.Error(code, "no")} })
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.up()
			h.set(testClaim("a", 2*mib))
			if got := h.status(testKey("a")).Rejected; got != want {
				t.Errorf("%s: rejected is %v", code, got)
			}
			smaller := testClaim("a", mib)
			smaller.Class.Provisioner = "away.example.com" // it cannot be asked yet
			h.set(smaller)
			if s := h.status(testKey("a")); s.Rejected {
				t.Errorf("%s: the next request is rejected before it was made: %+v", code, s)
			}
		})
	}
}
