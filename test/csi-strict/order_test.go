package csistrict

import (
	"context"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// rulesOf makes a call that ends with code, heard by its caller or not, and returns the rules it broke.
func (k *court) rulesOf(req proto.Message, code codes.Code, heard bool) (rules []string) {
	c := k.arrive(req, context.Background(), seen{})
	k.end(c, code, heard, false, k.now)
	for _, f := range c.found {
		rules = append(rules, f.rule)
	}
	return rules
}

// An unanswered call is repeated unchanged, or its object is deleted first.
func TestARepeatHasTheSameFields(t *testing.T) {
	volume := func(tier string) proto.Message {
		return &csi.CreateVolumeRequest{Name: "new", Parameters: map[string]string{"tier": tier}, Secrets: map[string]string{"s": tier}}
	}
	cut := func(source string) proto.Message {
		return &csi.CreateSnapshotRequest{Name: "cut", SourceVolumeId: source}
	}
	modify := func(tier string) proto.Message {
		return &csi.ControllerModifyVolumeRequest{VolumeId: "v", MutableParameters: map[string]string{"tier": tier}}
	}
	for what, c := range map[string]struct{ first, other, negation proto.Message }{
		"CreateVolume":           {volume("a"), volume("b"), &csi.DeleteVolumeRequest{VolumeId: "new"}},
		"CreateSnapshot":         {cut("v"), cut("w"), &csi.DeleteSnapshotRequest{SnapshotId: "cut"}},
		"ControllerModifyVolume": {modify("a"), modify("b"), &csi.DeleteVolumeRequest{VolumeId: "v"}},
		"CreateVolumeGroupSnapshot": {
			cutGroup("v", "w"), cutGroup("v"), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: []string{"1"}},
		},
	} {
		able := Script{With: []string{"MODIFY_VOLUME"}}
		for _, end := range []struct {
			code  codes.Code
			heard bool
			open  bool
		}{
			{codes.OK, true, false},
			{codes.OK, false, true},
			{codes.DeadlineExceeded, true, true},
			{codes.Canceled, true, true},
			{codes.ResourceExhausted, true, false},
			{codes.InvalidArgument, false, true},
		} {
			k := newCourt(able)
			k.rulesOf(c.first, end.code, end.heard)
			if got := k.rulesOf(c.first, codes.OK, false); slices.Contains(got, "N-59") {
				t.Errorf("%s after %+v: the same again breaks %q", what, end, got)
			}
			k = newCourt(able)
			k.rulesOf(c.first, end.code, end.heard)
			if got := k.rulesOf(c.other, codes.OK, true); slices.Contains(got, "N-59") != end.open {
				t.Errorf("%s after %+v: another breaks %q", what, end, got)
			}
			k = newCourt(able)
			k.rulesOf(c.first, end.code, end.heard)
			k.rulesOf(c.negation, codes.OK, true)
			if got := k.rulesOf(c.other, codes.OK, true); slices.Contains(got, "N-59") {
				t.Errorf("%s after %+v and a deletion: another breaks %q", what, end, got)
			}
		}
	}
}

// A volume is not changed during a snapshot of it, nor the other way round.
func TestASnapshotIsAlone(t *testing.T) {
	cut := &csi.CreateSnapshotRequest{Name: "cut", SourceVolumeId: "v"}
	for _, change := range []proto.Message{
		&csi.DeleteVolumeRequest{VolumeId: "v"},
		&csi.ControllerExpandVolumeRequest{VolumeId: "v"},
		&csi.ControllerModifyVolumeRequest{VolumeId: "v", MutableParameters: map[string]string{"a": "b"}},
	} {
		for _, pair := range [][2]proto.Message{{cut, change}, {change, cut}} {
			k := newCourt(Script{With: []string{"MODIFY_VOLUME"}})
			first := k.arrive(pair[0], context.Background(), seen{})
			second := k.arrive(pair[1], context.Background(), seen{})
			if !slices.ContainsFunc(second.found, func(f finding) bool { return f.rule == "N-21" }) {
				t.Errorf("%T while %T: %+v", pair[1], pair[0], second.found)
			}
			k.end(second, codes.OK, true, false, k.now)
			k.end(first, codes.OK, true, false, k.now)
			if got := k.rulesOf(pair[1], codes.OK, true); slices.Contains(got, "N-21") {
				t.Errorf("%T after %T: %q", pair[1], pair[0], got)
			}
		}
	}
	k := newCourt(Script{})
	k.arrive(cut, context.Background(), seen{})
	if got := k.rulesOf(&csi.ControllerExpandVolumeRequest{VolumeId: "w"}, codes.OK, true); slices.Contains(got, "N-21") {
		t.Errorf("another volume: %q", got)
	}
}

// A volume is modified only if the driver has that ability.
func TestModifyNeedsTheAbility(t *testing.T) {
	modify := &csi.ControllerModifyVolumeRequest{VolumeId: "v", MutableParameters: map[string]string{"a": "b"}}
	for _, s := range []Script{{}, {With: []string{"MODIFY_VOLUME"}}} {
		if got := newCourt(s).rulesOf(modify, codes.OK, true); slices.Contains(got, "N-13") == (len(s.With) > 0) {
			t.Errorf("%+v: %q", s, got)
		}
	}
}
