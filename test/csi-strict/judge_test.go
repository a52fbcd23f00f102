package csistrict

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

const (
	staging = "/root/staging"
	target  = "/root/pods/a/mount"
	other   = "/root/pods/b/mount"
)

// court is a judge with a clock, and volumes "v" and "w".
type court struct {
	*judge
	now  time.Time
	node string // on which calls arrive
}

func newCourt(s Script) *court {
	v := func(id string) *Volume {
		return &Volume{ID: id, SizeBytes: 10, Context: map[string]string{"k": id}, Attach: Fact{Context: map[string]string{"device": id}}}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &court{now: now, judge: &judge{
		open: map[string]string{}, cuts: map[string]bool{},
		model:  &Model{Volumes: map[string]*Volume{"v": v("v"), "w": v("w")}, Fired: map[string]int{}},
		script: s, told: s, nodeID: "node-1", since: now, inFlight: map[string]*call{},
	}}
}

// arrive judges a call that arrives now.
func (k *court) arrive(req proto.Message, ctx context.Context, at seen) *call {
	k.now = k.now.Add(time.Second)
	c := &call{
		ctx: ctx, node: k.node, name: strings.TrimSuffix(string(req.ProtoReflect().Descriptor().Name()), "Request"), req: req, at: k.now,
		volume: volumeOf(req), path: pathOf(req), request: canonical(req), seen: at,
	}
	k.ephemeral(c)
	k.begin(c)
	if _, refused := c.refusal(); !refused {
		k.accept(c)
	}
	return c
}

// call makes a call that ends with code at once, and returns the rules it broke.
func (k *court) call(req proto.Message, code codes.Code, at ...seen) (rules []string) {
	where := seen{staging: true, parent: true}
	if len(at) > 0 {
		where = at[0]
	}
	c := k.arrive(req, context.Background(), where)
	if f, refused := c.refusal(); refused {
		code = f.code
	}
	if v := k.model.Volumes[c.volume]; c.name == "ControllerPublishVolume" && v != nil { // as the Controller service does
		v.Attach.Context = map[string]string{"device": v.ID}
	}
	k.end(c, code, true, false, k.now)
	for _, f := range c.found {
		rules = append(rules, f.rule)
	}
	return rules
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
	}
}

func attach() *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "node-1", VolumeCapability: capability(), VolumeContext: map[string]string{"k": "v"}}
}

func stage() *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: "v", StagingTargetPath: staging, VolumeCapability: capability(),
		VolumeContext: map[string]string{"k": "v"}, PublishContext: map[string]string{"device": "v"},
	}
}

func publish(path string) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: "v", StagingTargetPath: staging, TargetPath: path, VolumeCapability: capability(),
		VolumeContext: map[string]string{"k": "v"}, PublishContext: map[string]string{"device": "v"},
	}
}

func unpublish(path string) *csi.NodeUnpublishVolumeRequest {
	return &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: path}
}

func unstage() *csi.NodeUnstageVolumeRequest {
	return &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: staging}
}

func detach() *csi.ControllerUnpublishVolumeRequest {
	return &csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: "node-1"}
}

func expand() *csi.NodeExpandVolumeRequest {
	return &csi.NodeExpandVolumeRequest{
		VolumeId: "v", VolumePath: target, StagingTargetPath: staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 10},
	}
}

func statsOf() *csi.NodeGetVolumeStatsRequest {
	return &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: target, StagingTargetPath: staging}
}

// up makes the volume by these steps, which must break no rule.
func (k *court) up(t *testing.T, steps ...proto.Message) {
	t.Helper()
	for _, req := range steps {
		if broken := k.call(req, codes.OK); len(broken) > 0 {
			t.Fatalf("%T breaks %q", req, broken)
		}
	}
}

func TestAFaithfulLifeBreaksNoRule(t *testing.T) {
	k := newCourt(Script{With: []string{"VOLUME_MOUNT_GROUP"}})
	k.up(t, attach(), stage(), publish(target), publish(other), expand(), statsOf())
	if broken := k.call(unpublish(target), codes.Internal, seen{target: true}); len(broken) > 0 {
		t.Errorf("%q", broken)
	}
	if broken := k.call(unpublish(target), codes.OK, seen{target: true}); len(broken) > 0 {
		t.Errorf("%q", broken)
	}
	if broken := k.call(unpublish(other), codes.OK, seen{target: true}); len(broken) > 0 {
		t.Errorf("%q", broken)
	}
	k.up(t, unstage(), detach(), attach(), stage(), unstage(), detach())
	if left := k.model.Left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Each case is one breach, and no other.
func TestEachRuleCatchesItsBreach(t *testing.T) {
	change := func(req proto.Message, do func(proto.Message)) proto.Message {
		do(req)
		return req
	}
	for name, tc := range map[string]struct {
		rule   string
		script Script
		before []proto.Message
		req    proto.Message
		seen   seen
	}{
		"stage without the ability": {"N-51", Script{Without: []string{"STAGE_UNSTAGE_VOLUME"}}, []proto.Message{attach()}, stage(), seen{staging: true}},
		"stage before attach":       {"N-53", Script{}, nil, stage(), seen{staging: true}},
		"other publish context": {
			"N-39",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) { m.(*csi.NodeStageVolumeRequest).PublishContext["x"] = "y" }),
			seen{staging: true},
		},
		"other volume context": {
			"N-40",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) { m.(*csi.NodeStageVolumeRequest).VolumeContext["x"] = "y" }),
			seen{staging: true},
		},
		"no staging directory": {"N-56", Script{}, []proto.Message{attach()}, stage(), seen{}},
		"no staging path": {
			"N-24",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) { m.(*csi.NodeStageVolumeRequest).StagingTargetPath = "" }),
			seen{staging: true},
		},
		"no access mode": {
			"N-43",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) { m.(*csi.NodeStageVolumeRequest).VolumeCapability.AccessMode = nil }),
			seen{staging: true},
		},
		"group without the ability": {
			"N-45",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) {
				m.(*csi.NodeStageVolumeRequest).VolumeCapability.GetMount().VolumeMountGroup = "7"
			}),
			seen{staging: true},
		},
		"group that is none": {
			"N-45",
			Script{With: []string{"VOLUME_MOUNT_GROUP"}},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) {
				m.(*csi.NodeStageVolumeRequest).VolumeCapability.GetMount().VolumeMountGroup = "staff"
			}),
			seen{staging: true},
		},
		"old access mode": {
			"N-46",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) {
				m.(*csi.NodeStageVolumeRequest).VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
			}),
			seen{staging: true},
		},
		"too long a string": {
			"N-23",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) {
				m.(*csi.NodeStageVolumeRequest).VolumeCapability.GetMount().FsType = strings.Repeat("x", 129)
			}),
			seen{staging: true},
		},
		"too large a map": {
			"N-23",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) {
				m.(*csi.NodeStageVolumeRequest).Secrets = map[string]string{"k": strings.Repeat("x", 4096)}
			}),
			seen{staging: true},
		},
		"relative path": {
			"N-42",
			Script{},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) { m.(*csi.NodeStageVolumeRequest).StagingTargetPath = "staging" }),
			seen{staging: true},
		},
		"a secret that no class names": {
			"N-34",
			Script{Secrets: map[string]map[string]string{}},
			[]proto.Message{attach()},
			change(stage(), func(m proto.Message) {
				m.(*csi.NodeStageVolumeRequest).Secrets = map[string]string{"k": "x"}
			}),
			seen{staging: true},
		},
		"a secret that is missing": {"N-34", Script{Secrets: map[string]map[string]string{"NodeStageVolume": {"k": "x"}}}, []proto.Message{attach()}, stage(), seen{staging: true}},
		"another staging path": {
			"N-55",
			Script{},
			[]proto.Message{attach(), stage(), unstage()},
			change(stage(), func(m proto.Message) { m.(*csi.NodeStageVolumeRequest).StagingTargetPath = "/root/other" }),
			seen{staging: true},
		},
		"stage repeated otherwise": {
			"N-59",
			Script{},
			[]proto.Message{attach(), stage()},
			change(stage(), func(m proto.Message) {
				m.(*csi.NodeStageVolumeRequest).VolumeCapability.GetMount().FsType = "xfs"
			}),
			seen{staging: true},
		},
		"publish before stage": {"N-54", Script{}, []proto.Message{attach(), stage(), unstage()}, publish(target), seen{parent: true}},
		"publish before attach": {
			"N-65",
			Script{Without: []string{"STAGE_UNSTAGE_VOLUME"}},
			nil,
			change(publish(target), func(m proto.Message) { m.(*csi.NodePublishVolumeRequest).StagingTargetPath = "" }),
			seen{parent: true},
		},
		"publish without staging path": {
			"N-66",
			Script{},
			[]proto.Message{attach(), stage()},
			change(publish(target), func(m proto.Message) { m.(*csi.NodePublishVolumeRequest).StagingTargetPath = "" }),
			seen{parent: true},
		},
		"staging path without stage": {"N-66", Script{Without: []string{"STAGE_UNSTAGE_VOLUME"}}, []proto.Message{attach()}, publish(target), seen{parent: true}},
		"target that is there":       {"N-68", Script{}, []proto.Message{attach(), stage()}, publish(target), seen{parent: true, target: true}},
		"no parent":                  {"N-68", Script{}, []proto.Message{attach(), stage()}, publish(target), seen{}},
		"publish repeated otherwise": {
			"N-59",
			Script{},
			[]proto.Message{attach(), stage(), publish(target)},
			change(publish(target), func(m proto.Message) { m.(*csi.NodePublishVolumeRequest).Readonly = true }),
			seen{parent: true},
		},
		"another capability": {
			"N-47",
			Script{},
			[]proto.Message{attach(), stage()},
			change(publish(target), func(m proto.Message) {
				m.(*csi.NodePublishVolumeRequest).VolumeCapability.GetMount().FsType = "xfs"
			}),
			seen{parent: true},
		},
		"unstage while published":     {"N-62", Script{}, []proto.Message{attach(), stage(), publish(target)}, unstage(), seen{}},
		"target gone":                 {"N-76", Script{}, []proto.Message{attach(), stage(), publish(target)}, unpublish(target), seen{}},
		"detach while staged":         {"N-104", Script{}, []proto.Message{attach(), stage()}, detach(), seen{}},
		"delete while attached":       {"N-104", Script{}, []proto.Message{attach()}, &csi.DeleteVolumeRequest{VolumeId: "v"}, seen{}},
		"attach where none is wanted": {"N-13", Script{Attach: new(bool)}, nil, attach(), seen{}},
		"attach to another node": {
			"N-103",
			Script{},
			nil,
			change(attach(), func(m proto.Message) { m.(*csi.ControllerPublishVolumeRequest).NodeId = "node-2" }),
			seen{},
		},
		"create without a service":   {"N-13", Script{NoController: true}, nil, &csi.CreateVolumeRequest{Name: "n"}, seen{}},
		"expand without the ability": {"N-94", Script{Without: []string{"EXPAND_VOLUME"}}, []proto.Message{attach(), stage(), publish(target)}, expand(), seen{}},
		"expand what is nowhere":     {"N-97", Script{}, []proto.Message{attach(), stage()}, expand(), seen{}},
		"expand without staging path": {
			"N-99",
			Script{},
			[]proto.Message{attach(), stage(), publish(target)},
			change(expand(), func(m proto.Message) { m.(*csi.NodeExpandVolumeRequest).StagingTargetPath = "" }),
			seen{},
		},
		"expand too far": {
			"N-95",
			Script{},
			[]proto.Message{attach(), stage(), publish(target)},
			change(expand(), func(m proto.Message) { m.(*csi.NodeExpandVolumeRequest).CapacityRange.RequiredBytes = 11 }),
			seen{},
		},
		"expand in use": {
			"N-98",
			Script{With: []string{"OFFLINE"}},
			[]proto.Message{attach(), stage()},
			&csi.ControllerExpandVolumeRequest{VolumeId: "v"},
			seen{},
		},
		"stats without the ability": {"N-78", Script{Without: []string{"GET_VOLUME_STATS"}}, []proto.Message{attach(), stage(), publish(target)}, statsOf(), seen{}},
		"stats of nothing":          {"N-80", Script{}, []proto.Message{attach()}, statsOf(), seen{}},
		"stats of another stage": {
			"N-79",
			Script{},
			[]proto.Message{attach(), stage(), publish(target)},
			change(statsOf(), func(m proto.Message) { m.(*csi.NodeGetVolumeStatsRequest).StagingTargetPath = "/root/other" }),
			seen{},
		},
		"health without the ability": {"N-84", Script{}, []proto.Message{attach(), stage()}, &csi.NodeGetVolumeHealthRequest{VolumeId: "v"}, seen{}},
		"health at another path": {
			"N-84",
			Script{With: []string{"GET_VOLUME_HEALTH"}},
			[]proto.Message{attach(), stage()},
			&csi.NodeGetVolumeHealthRequest{VolumeId: "v", VolumePublishPath: target, StagingTargetPath: staging},
			seen{},
		},
		"health of another stage": {
			"N-84",
			Script{With: []string{"GET_VOLUME_HEALTH"}},
			[]proto.Message{attach(), stage(), publish(target)},
			&csi.NodeGetVolumeHealthRequest{VolumeId: "v", VolumePublishPath: target, StagingTargetPath: "/root/other"},
			seen{},
		},
		"health at the controller without the ability": {
			"N-84",
			Script{With: []string{"GET_VOLUME_HEALTH"}, Without: []string{"CONTROLLER_GET_VOLUME_HEALTH"}},
			nil,
			&csi.ControllerGetVolumeHealthRequest{VolumeId: "v"},
			seen{},
		},
		"health at the controller of no volume":             {"N-24", Script{}, nil, &csi.ControllerGetVolumeHealthRequest{}, seen{}},
		"health at the controller of a volume that is gone": {"N-84", Script{}, nil, &csi.ControllerGetVolumeHealthRequest{VolumeId: "x"}, seen{}},
		"health at the controller with secrets for no one": {
			"N-34",
			Script{Secrets: map[string]map[string]string{}},
			nil,
			&csi.ControllerGetVolumeHealthRequest{VolumeId: "v", Secrets: map[string]string{"key": "a"}},
			seen{},
		},
		"storage without the ability": {"N-87", Script{}, nil, &csi.NodeGetStorageHealthRequest{}, seen{}},
		"pod info without podInfoOnMount": {
			"N-40",
			Script{PodInfo: new(bool)},
			[]proto.Message{attach(), stage()},
			change(publish(target), func(m proto.Message) {
				m.(*csi.NodePublishVolumeRequest).VolumeContext[reserved+"pod.name"] = "web"
			}),
			seen{parent: true},
		},
	} {
		k := newCourt(tc.script)
		k.up(t, tc.before...)
		if got := k.call(tc.req, codes.OK, tc.seen); !slices.Contains(got, tc.rule) || len(slices.Compact(got)) != 1 {
			t.Errorf("%s: broken: %q, want %s", name, got, tc.rule)
		}
	}
}

// After a failed removal the volume is not made again, and must be removed first.
func TestNothingIsTurnedBackFromARemoval(t *testing.T) {
	k := newCourt(Script{})
	k.up(t, attach(), stage(), publish(target))
	k.call(unpublish(target), codes.Internal, seen{target: true})
	if got := k.call(publish(target), codes.OK, seen{parent: true, target: true}); !slices.Contains(got, "N-70") {
		t.Errorf("publish: %q", got)
	}
	k.call(unpublish(target), codes.OK, seen{target: true})
	k.call(unstage(), codes.Unavailable)
	if got := k.call(stage(), codes.OK); !slices.Contains(got, "N-52") {
		t.Errorf("stage: %q", got)
	}
	k.call(unstage(), codes.OK)
	k.call(detach(), codes.Unavailable)
	if got := k.call(attach(), codes.OK); !slices.Contains(got, "N-104") {
		t.Errorf("attach: %q", got)
	}
}

// A failed publication may exist nevertheless.
func TestAFailedPublicationIsToBeUnpublished(t *testing.T) {
	k := newCourt(Script{})
	k.up(t, attach(), stage())
	k.call(publish(target), codes.Unavailable)
	if got := k.call(unstage(), codes.OK); !slices.Contains(got, "N-62") {
		t.Errorf("%q", got)
	}
}

func TestOneCallAVolume(t *testing.T) {
	k := newCourt(Script{})
	k.up(t, attach())
	ctx, cancel := context.WithCancel(t.Context())
	first := k.arrive(stage(), ctx, seen{staging: true})
	if got := k.call(unstage(), codes.OK); !slices.Contains(got, "N-21") {
		t.Errorf("while another is in flight: %q", got)
	}
	k.end(first, codes.OK, true, false, k.now)
	second := k.arrive(publish(target), ctx, seen{parent: true})
	cancel()
	if got := k.call(publish(target), codes.OK); len(got) > 0 {
		t.Errorf("after the caller gave up: %q", got)
	}
	if k.inFlight["v"] != second {
		t.Error("the call that goes on is forgotten")
	}
}

// A call that asks for the state of a mount may have been under way when that was unmounted; no second one can.
func TestACallThatAsksMayArriveLate(t *testing.T) {
	health := &csi.NodeGetVolumeHealthRequest{VolumeId: "v", VolumePublishPath: target, StagingTargetPath: staging}
	for rule, ask := range map[string]proto.Message{"N-80": statsOf(), "N-84": health} {
		k := newCourt(Script{With: []string{"GET_VOLUME_HEALTH"}})
		k.up(t, attach(), stage(), publish(target), ask)
		k.call(unpublish(target), codes.OK, seen{target: true})
		if got := k.call(ask, codes.NotFound); len(got) > 0 {
			t.Errorf("once after the end: %q", got)
		}
		if got := k.call(ask, codes.NotFound); !slices.Contains(got, rule) {
			t.Errorf("twice after the end: %q, want %s", got, rule)
		}
	}
}

func TestTargetsAndExclusiveVolumes(t *testing.T) {
	k := newCourt(Script{})
	k.up(t, attach(), stage(), publish(target))
	k.model.Volumes["w"].Targets = map[string]Fact{other: {Phase: Present}}
	if got := k.call(publish(other), codes.OK); !slices.Contains(got, "N-67") {
		t.Errorf("another volume's target: %q", got)
	}
	k = newCourt(Script{})
	single := csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	s, p, q := stage(), publish(target), publish(other)
	for _, c := range []*csi.VolumeCapability{s.VolumeCapability, p.VolumeCapability, q.VolumeCapability} {
		c.AccessMode.Mode = single
	}
	k.up(t, attach(), s, p)
	if got := k.call(q, codes.OK); !slices.Contains(got, "N-48") {
		t.Errorf("a second target: %q", got)
	}
}

func TestRepetitions(t *testing.T) {
	k := newCourt(Script{})
	k.up(t, attach(), stage(), publish(target))
	k.call(expand(), codes.FailedPrecondition)
	if got := k.call(expand(), codes.OK); !slices.Contains(got, "N-102") {
		t.Errorf("expansion that the use forbids: %q", got)
	}
	k.call(statsOf(), codes.Unimplemented)
	if got := k.call(statsOf(), codes.Unimplemented); !slices.Contains(got, "N-31") {
		t.Errorf("after UNIMPLEMENTED: %q", got)
	}
	k.model.Asked++
	if got := k.call(statsOf(), codes.Internal); len(got) > 0 {
		t.Errorf("after the driver was asked anew: %q", got)
	}
	for i := range maxHot + 1 {
		k.now = k.now.Add(-time.Second)
		if got := k.call(statsOf(), codes.Internal); slices.Contains(got, "N-30") != (i == maxHot) {
			t.Errorf("repetition %d without a pause: %q", i, got)
		}
	}
}

func TestAbilitiesAreNotForEveryCall(t *testing.T) {
	k := newCourt(Script{})
	for asked := 1; asked <= maxAsked+1; asked++ {
		c := &call{ctx: t.Context(), name: "NodeGetCapabilities", req: &csi.NodeGetCapabilitiesRequest{}, asked: asked}
		k.begin(c)
		if broken := len(c.found) > 0; broken != (asked > maxAsked) {
			t.Errorf("question %d on one connection: %+v", asked, c.found)
		}
	}
}

// The abilities that the CO was told count, not later changes of the driver.
func TestAbilitiesCountAsTold(t *testing.T) {
	k := newCourt(Script{})
	k.up(t, attach())
	k.script = Script{Without: []string{"STAGE_UNSTAGE_VOLUME"}}
	k.up(t, stage())
	k.told = k.script
	if got := k.call(unstage(), codes.OK); len(got) > 0 {
		t.Errorf("what was staged before cannot be unstaged: %q", got)
	}
}

func TestInlineVolumesAreNeitherAttachedNorStaged(t *testing.T) {
	yes := true
	k := newCourt(Script{PodInfo: &yes})
	req := &csi.NodePublishVolumeRequest{VolumeId: "inline", TargetPath: target, VolumeCapability: capability(), VolumeContext: map[string]string{
		ephemeralKey: "true", reserved + "pod.name": "p", reserved + "pod.namespace": "n", reserved + "pod.uid": "u", reserved + "serviceAccount.name": "s",
	}}
	k.up(t, req)
	if got := k.call(&csi.NodeUnpublishVolumeRequest{VolumeId: "inline", TargetPath: target}, codes.OK, seen{target: true}); len(got) > 0 || k.model.Volumes["inline"] != nil {
		t.Errorf("%q, left %+v", got, k.model.Volumes["inline"])
	}
	req.StagingTargetPath = staging
	delete(req.VolumeContext, reserved+"pod.uid")
	if got := k.call(req, codes.OK); !slices.Equal(got, []string{"N-40", "N-66"}) {
		t.Errorf("with a staging path and without the pod's uid: %q", got)
	}
}
