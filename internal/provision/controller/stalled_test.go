package controller

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A claim is stalled while nothing has begun and no time ends its wait: a front end that waits for its volume may give up
// and withdraw it. A claim whose volume may exist, or that is tried again, is not.
func TestWhichClaimsAreStalled(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		want := func(what string, stalled, away bool) {
			t.Helper()
			if s := h.status(testKey("a")); s.Stalled != stalled || (s.Away == h.backend.name) != away {
				t.Errorf("%s: stalled %v, away %q: %s", what, s.Stalled, s.Away, s.Reason)
			}
		}
		h.set(testClaim("a", 256*mib))
		want("the driver never was up", true, true)
		create := h.backend.rpcs
		h.backend.rpcs = slices.DeleteFunc(slices.Clone(create), func(c csi.ControllerServiceCapability_RPC_Type) bool {
			return c == csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME
		})
		h.up()
		want("the driver makes no volumes", true, false)
		h.backend.rpcs = create
		h.backend.fault = func(string, proto.Message) fault { return fault{after: status.Error(codes.DeadlineExceeded, "lost")} }
		h.up()
		want("the call failed", false, false)
		h.c.DriverDown(h.backend.name)
		synctest.Wait()
		want("the driver went when the volume may exist", false, false)
	})
}
