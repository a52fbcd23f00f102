package controller

import (
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// gilded returns c with a VolumeAttributesClass.
func gilded(c Claim, class string) Claim {
	c.Attributes = AttributesClass{
		Driver: "strict.example.com", Attributes: Attributes{Class: class, Parameters: map[string]string{"tier": class}},
	}
	return c
}

// has returns the mutable parameters of a volume at the backend.
func (b *backend) has(name string) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.volumes["pvc-uid-"+name].has
}

// A volume is made with the attributes of its claim's class, and modified once when the claim names another class. It
// keeps them if the claim names none any more. A restart repeats no call.
//
// Sidecars: SP-23, SR-08, SR-12.
func TestAVolumeIsModified(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(gilded(testClaim("a", mib), "silver"))
		if v := h.bound(testKey("a")); v.AttributesClass != "silver" || b.has("a")["tier"] != "silver" {
			t.Errorf("made: %+v, %v", v, b.has("a"))
		}
		h.set(gilded(testClaim("a", mib), "gold"))
		settleFor(time.Minute)
		if v := h.bound(testKey("a")); v.AttributesClass != "gold" || b.has("a")["tier"] != "gold" {
			t.Errorf("changed: %+v, %v", v, b.has("a"))
		}
		other := gilded(testClaim("a", mib), "gold") // its class was recreated with other parameters
		other.Attributes.Parameters = map[string]string{"tier": "platinum"}
		h.set(other)
		settleFor(time.Minute)
		h.set(testClaim("a", mib))
		settleFor(time.Minute)
		if v := h.bound(testKey("a")); v.AttributesClass != "gold" || b.has("a")["tier"] != "platinum" || h.status(testKey("a")).Reason != "" {
			t.Errorf("none: %+v, %v, %+v", v, b.has("a"), h.status(testKey("a")))
		}
		h.end()
		h.live()
		h.up()
		h.set(other)
		settleFor(time.Minute)
		wantCalls(t, b, "CreateVolume pvc-uid-a", "ControllerModifyVolume vol-1", "ControllerModifyVolume vol-1")
	})
}

// A claim whose class is missing, belongs to another driver, or asks for more than the driver can do waits and says
// which; an existing volume stays as it is.
//
// Sidecars: SP-23, SR-11.
func TestAttributesThatCannotBeHad(t *testing.T) {
	for what, c := range map[string]struct {
		change  func(*Claim)
		without bool
		words   string
	}{
		"not there":   {change: func(c *Claim) { c.Attributes.Driver, c.Attributes.Parameters = "", nil }, words: `VolumeAttributesClass "gold" not found`},
		"of another":  {change: func(c *Claim) { c.Attributes.Driver = "other.example.com" }, words: "is for driver other.example.com"},
		"not able to": {change: func(*Claim) {}, without: true, words: "it has no MODIFY_VOLUME"},
	} {
		b := newBackend()
		if c.without {
			b.rpcs = b.rpcs[:3]
		}
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.up()
			claim := gilded(testClaim("a", mib), "gold")
			c.change(&claim)
			h.set(claim)
			settleFor(time.Minute)
			if s := h.status(testKey("a")); s.Phase != Pending || !strings.Contains(s.Reason, c.words) {
				t.Errorf("%s: new: %+v", what, s)
			}
			h.set(testClaim("b", mib))
			claim.Key, claim.UID = testKey("b"), "uid-b"
			h.set(claim)
			settleFor(time.Minute)
			if s := h.status(testKey("b")); s.Phase != Bound || !strings.Contains(s.Reason, c.words) {
				t.Errorf("%s: there: %+v", what, s)
			}
			wantCalls(t, b, "CreateVolume pvc-uid-b")
		})
	}
}

// After a lost answer the controller repeats the same call before another one. After a refusal the claim may name
// another class. Neither stops the volume from growing.
//
// Sidecars: SR-09, SR-10.
func TestAModifyThatFails(t *testing.T) {
	b := newBackend()
	lost := true
	b.fault = onCall("ControllerModifyVolume", func(_ string, req proto.Message) fault {
		switch tier := asMutable(req)["tier"]; {
		case tier == "gold" && lost:
			lost = false
			return fault{after: status.Error(codes.DeadlineExceeded, "slow")}
		case tier == "lead":
			return fault{before: status.Error(codes.InvalidArgument, "no such tier")}
		}
		return fault{}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.set(gilded(testClaim("a", mib), "gold"))
		h.set(gilded(testClaim("a", mib), "silver"))
		settleFor(time.Hour)
		if v := h.bound(testKey("a")); v.AttributesClass != "silver" || b.has("a")["tier"] != "silver" {
			t.Errorf("%+v, %v", v, b.has("a"))
		}
		wantCalls(t, b, "CreateVolume pvc-uid-a", "ControllerModifyVolume vol-1", "ControllerModifyVolume vol-1", "ControllerModifyVolume vol-1")
		h.set(gilded(testClaim("a", mib), "lead"))
		settleFor(time.Second)
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "no such tier") || s.Volume.AttributesClass != "silver" {
			t.Errorf("%+v", s)
		}
		h.set(gilded(testClaim("a", 2*mib), "lead"))
		settleFor(time.Second)
		if v := h.bound(testKey("a")); v.CapacityBytes != 2*mib {
			t.Errorf("%+v", v)
		}
		h.set(gilded(testClaim("a", 2*mib), "silver")) // the current class
		settleFor(time.Second)
		if s := h.status(testKey("a")); s.Reason != "" || s.Retry.Attempts != 0 {
			t.Errorf("taken back: %+v", s)
		}
		h.set(gilded(testClaim("a", 2*mib), "gold"))
		settleFor(time.Second)
		if v := h.bound(testKey("a")); v.AttributesClass != "gold" {
			t.Errorf("%+v, %+v", v, h.status(testKey("a")))
		}
	})
}

// A size that cannot be had does not stop the volume from being modified.
func TestARefusedSizeHoldsUpNoModify(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", 2*mib))
		h.set(gilded(testClaim("a", mib), "gold"))
		settleFor(time.Second)
		if s := h.status(testKey("a")); s.Volume.AttributesClass != "gold" || !strings.Contains(s.Reason, "cannot shrink") {
			t.Errorf("%+v", s)
		}
	})
}

func asMutable(req proto.Message) map[string]string {
	r, ok := req.(interface{ GetMutableParameters() map[string]string })
	if !ok {
		return nil
	}
	return maps.Clone(r.GetMutableParameters())
}

// Each outcome of the pure decision about attributes.
//
// Sidecars: SR-08, SR-09.
func TestNextModify(t *testing.T) {
	gold := Attributes{Class: "gold", Parameters: map[string]string{"tier": "gold"}}
	silver := Attributes{Class: "silver", Parameters: map[string]string{"tier": "silver"}}
	now := time.Unix(1000, 0)
	for _, has := range []Attributes{{}, gold} {
		for _, uncertain := range []*Attributes{nil, &silver} {
			for _, asks := range []Attributes{{}, gold, silver} {
				for _, listed := range []bool{false, true} {
					for _, up := range []bool{false, true} {
						r := record{Spec: spec{Driver: "d"}, Attributes: has, Modifying: uncertain, Volume: state.Fact{Phase: state.Present}}
						w := want{Listed: listed, Claim: Claim{Attributes: AttributesClass{Driver: "d", Attributes: asks}}}
						f := facts{Driver: driverFacts{caps: caps{Modify: true}}}
						if !up {
							f.Driver.Problem = "it is down"
						}
						o, h := nextModify(r, w, f, now)
						goal := asks
						if uncertain != nil {
							goal = *uncertain
						}
						wanted := listed && (uncertain != nil || asks.Class != "" && !asks.equal(has))
						if (o.verb == modifyVolume) != (wanted && up) || (h.reason != "") != (wanted && !up) || o.verb == modifyVolume && !o.attributes.equal(goal) {
							t.Errorf("has %v, uncertain %v, asks %v, listed %v, up %v: %+v, %+v", has, uncertain, asks, listed, up, o, h)
						}
					}
				}
			}
		}
	}
}
