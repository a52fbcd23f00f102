package controller

import (
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The controller asks a driver for the health of a claim's volume, if the driver can tell, while it is up and no
// other call for the volume is in flight. Such a driver's arrival is signalled as a change.
func TestHealthOfAClaimsVolume(t *testing.T) {
	for _, knows := range []bool{false, true} {
		b := newBackend()
		if knows {
			b.rpcs = append(b.rpcs, csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH)
		}
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.up()
			h.set(testClaim("a", mib))
			h.set(testClaim("b", mib))
			v := h.bound(testKey("a"))
			h.c.DriverDown(b.name)
			synctest.Wait()
			if _, ok := h.c.Health("default/a", v.ID()); ok || len(h.c.Monitored()) != 0 {
				t.Error("a driver that is away is asked")
			}
			changed := h.c.Changed()
			h.up()
			select {
			case <-changed:
			default:
				if knows {
					t.Error("the driver is no change")
				}
			}
			judged := h.c.Monitored()
			if is, ok := judged[v.ID()]; ok != knows || knows && (is != Monitored{b.name, "default/a"} || len(judged) != 2) {
				t.Errorf("knows %v: %v", knows, judged)
			}
			ask, ok := h.c.Health("default/a", v.ID())
			if ok != knows {
				t.Errorf("knows %v, asked %v", knows, ok)
			}
			if !knows {
				return
			}
			found, err := ask(t.Context())
			if err != nil || len(found) != 1 || found[0].Status != "DATA_LOSS" || found[0].Reason != "TwoDisks" {
				t.Errorf("%+v, %v", found, err)
			}
			for claim, id := range map[string]state.VolumeID{"default/none": v.ID(), "default/b": v.ID()} {
				if _, ok := h.c.Health(claim, id); ok {
					t.Errorf("the volume of another claim is asked for as that of %s", claim)
				}
			}
			hold := make(chan struct{})
			b.set(func() {
				b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault { return fault{wait: hold} })
			})
			h.snap(testSnapshot("s", v.Handle))
			if _, ok := h.c.Health("default/a", v.ID()); ok {
				t.Error("it is asked while a snapshot is cut")
			}
			close(hold)
			synctest.Wait()
			hold = make(chan struct{})
			b.set(func() {
				b.fault = onCall("ControllerExpandVolume", func(string, proto.Message) fault { return fault{wait: hold} })
			})
			h.set(testClaim("a", 2*mib))
			if _, ok := h.c.Health("default/a", v.ID()); ok {
				t.Error("it is asked while it grows")
			}
			close(hold)
			synctest.Wait()
			b.set(func() {
				b.fault = onCall("ControllerGetVolumeHealth", func(string, proto.Message) fault {
					return fault{before: status.Error(codes.NotFound, "no volume")}
				})
			})
			ask, _ = h.c.Health("default/a", v.ID())
			if _, err := ask(t.Context()); err == nil || err.Error() != "ControllerGetVolumeHealth: NotFound: no volume" {
				t.Errorf("%v", err)
			}
		})
	}
}
