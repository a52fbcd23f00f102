package csiclient

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	everything = Info{Stage: true, Expand: true, Stats: true, MountGroup: true, singleNodeMultiWriter: true}
	plainInfo  = Info{Stage: true}
	secret     = map[string]string{"password": "example"}
	layout     = state.Layout{Root: "/root"}
)

// sample returns a volume with every field set that a request may use.
func sample(change ...func(*state.Volume, *state.Mount)) state.Volume {
	group := int64(2000)
	v := state.Volume{
		ID: state.SharedID(driverName, "vol-1"),
		Spec: &state.Spec{
			Driver: driverName, Handle: "vol-1", Name: "pv-1", Claim: "default/data", Mode: state.Filesystem,
			FSType: "ext4", MountGroup: "2000", MountFlags: []string{"noatime", "discard"},
			AccessModes:    []state.AccessMode{state.ReadWriteOnce},
			Context:        map[string]string{"pool": "fast", "shared": "from the volume"},
			PublishContext: map[string]string{"devicePath": "/dev/cluster"},
			StagePath:      layout.StagePath(state.Filesystem, driverName, "vol-1", "pv-1"),
		},
		Needs:          state.Needs{Stage: true},
		PublishContext: map[string]string{"devicePath": "/dev/own"},
	}
	m := state.Mount{MountSpec: state.MountSpec{
		Pod: state.Pod{UID: "pod-1", Namespace: "default", Name: "web"}, Names: []string{"data"},
		Target: layout.Target(state.Filesystem, "pod-1", "pv-1"), FSGroup: &group,
		Context: map[string]string{"csi.storage.k8s.io/pod.name": "web", "shared": "from the pod"},
	}}
	for _, c := range change {
		c(&v, &m)
	}
	v.Mounts = map[state.PodUID]state.Mount{"pod-1": m}
	return v
}

func block(v *state.Volume, m *state.Mount) {
	v.Spec.Mode = state.Block
	v.Spec.StagePath = layout.StagePath(state.Block, driverName, "vol-1", "pv-1")
	m.Target = layout.Target(state.Block, "pod-1", "pv-1")
	m.DevicePath = layout.DevicePath("pod-1", "pv-1")
}

func ephemeral(v *state.Volume, m *state.Mount) {
	v.Spec.Ephemeral, v.Spec.Name, v.Spec.StagePath = true, "cache", ""
	v.Spec.Handle = state.EphemeralHandle("pod-1", "cache")
	v.Spec.AccessModes, v.Spec.MountFlags, v.Spec.FSType = nil, nil, ""
	v.Needs = state.Needs{}
	m.Target = layout.Target(state.Filesystem, "pod-1", "cache")
}

func readOnly(_ *state.Volume, m *state.Mount)  { m.ReadOnly = true }
func ownAttach(v *state.Volume, _ *state.Mount) { v.Needs.Attach = true }
func labelled(v *state.Volume, _ *state.Mount)  { v.Spec.SELinuxLabel = "u:object_r:t:s0:c1,c2" }
func noStage(v *state.Volume, _ *state.Mount)   { v.Needs.Stage = false }
func onePodOnly(v *state.Volume, _ *state.Mount) {
	v.Spec.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
}

func publishSample(i Info, change ...func(*state.Volume, *state.Mount)) (proto.Message, error) {
	v := sample(change...)
	return publishRequest(i, v, v.Mounts["pod-1"].MountSpec, secret)
}

// Items: A08, F05, F15, F16, F17, F23, N-39, N-40, N-44, N-50, N-66, N-79, N-80, N-99, N-100, I07, F18.
// Scenarios: U-46.
func TestRequestsAreAsTheGoldenFilesSay(t *testing.T) {
	v, b := sample(), sample(block)
	m, bm := v.Mounts["pod-1"].MountSpec, b.Mounts["pod-1"].MountSpec
	for name, make := range map[string]func() (proto.Message, error){
		"stage_filesystem":         func() (proto.Message, error) { return stageRequest(plainInfo, v, secret) },
		"stage_mount_group":        func() (proto.Message, error) { return stageRequest(everything, v, secret) },
		"stage_own_attach":         func() (proto.Message, error) { return stageRequest(plainInfo, sample(ownAttach), nil) },
		"stage_block":              func() (proto.Message, error) { return stageRequest(everything, b, secret) },
		"publish_filesystem":       func() (proto.Message, error) { return publishSample(plainInfo) },
		"publish_mount_group":      func() (proto.Message, error) { return publishSample(everything) },
		"publish_one_pod_only":     func() (proto.Message, error) { return publishSample(everything, onePodOnly) },
		"publish_readonly":         func() (proto.Message, error) { return publishSample(plainInfo, readOnly) },
		"publish_without_stage":    func() (proto.Message, error) { return publishSample(everything, noStage) },
		"publish_ephemeral":        func() (proto.Message, error) { return publishSample(everything, ephemeral) },
		"publish_block":            func() (proto.Message, error) { return publishSample(everything, block) },
		"unpublish_filesystem":     func() (proto.Message, error) { return unpublishRequest(v, m) },
		"unstage_filesystem":       func() (proto.Message, error) { return unstageRequest(v) },
		"expand_filesystem":        func() (proto.Message, error) { return expandRequest(everything, v, m, 1<<30) },
		"expand_block":             func() (proto.Message, error) { return expandRequest(plainInfo, b, bm, 1<<30) },
		"stats_filesystem":         func() (proto.Message, error) { return statsRequest(v, m) },
		"stats_without_stage":      func() (proto.Message, error) { return statsRequest(sample(noStage), m) },
		"stage_labelled":           func() (proto.Message, error) { return stageRequest(plainInfo, sample(labelled), nil) },
		"publish_labelled":         func() (proto.Message, error) { return publishSample(plainInfo, labelled) },
		"expand_labelled":          func() (proto.Message, error) { return expandRequest(plainInfo, sample(labelled), m, 1<<30) },
		"publish_own_attach_block": func() (proto.Message, error) { return publishSample(plainInfo, block, ownAttach) },
	} {
		t.Run(name, func(t *testing.T) {
			r, err := make()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name+".json"), r)
			if err := checkLimits(r); err != nil {
				t.Errorf("limits: %v", err)
			}
		})
	}
}

// golden compares a request with a file. protojson's spaces are random by design, so the
// file has those of encoding/json.
func golden(t *testing.T, path string, m proto.Message) {
	t.Helper()
	loose, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(loose, &v); err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update makes it", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The volume's own mount options stay in their order, and the label comes last: in stage
// and in publish, but not in expand.
//
// Items: H02, H01.
// Scenarios: U-94.
func TestOptionsStayBeforeTheLabel(t *testing.T) {
	v := sample(labelled)
	v.Spec.MountFlags = []string{"noatime", "context-of-mine", "discard"}
	want := []string{"noatime", "context-of-mine", "discard", `context="u:object_r:t:s0:c1,c2"`}
	stage, err := stageRequest(plainInfo, v, nil)
	if got := stage.GetVolumeCapability().GetMount().GetMountFlags(); err != nil || !slices.Equal(got, want) {
		t.Errorf("stage: got %q, %v, want %q", got, err, want)
	}
	publish, err := publishRequest(plainInfo, v, v.Mounts["pod-1"].MountSpec, nil)
	if got := publish.GetVolumeCapability().GetMount().GetMountFlags(); err != nil || !slices.Equal(got, want) {
		t.Errorf("publish: got %q, %v, want %q", got, err, want)
	}
	expand, err := expandRequest(plainInfo, v, v.Mounts["pod-1"].MountSpec, 1)
	if got := expand.GetVolumeCapability().GetMount().GetMountFlags(); err != nil || !slices.Equal(got, want[:3]) {
		t.Errorf("expand: got %q, %v, want %q", got, err, want[:3])
	}
	if len(v.Spec.MountFlags) != 3 {
		t.Errorf("the record now has %q", v.Spec.MountFlags)
	}
}

// A call gets the record that the loop, the API and the journal read too: building a
// request never writes to it, and no request shares a map or a list with it.
//
// Faults: A150.
func TestRequestsLeaveTheRecordAsItIs(t *testing.T) {
	for name, change := range map[string][]func(*state.Volume, *state.Mount){
		"file system": {labelled}, "block": {block, labelled}, "inline": {ephemeral, labelled}, "one pod": {labelled, onePodOnly, readOnly}, "own attach": {labelled, ownAttach},
		"no pod info": {labelled, func(_ *state.Volume, m *state.Mount) { m.Context = nil }},
	} {
		v, untouched := sample(change...), sample(change...)
		m := v.Mounts["pod-1"].MountSpec
		for call, make := range map[string]func() (proto.Message, error){
			"stage":     func() (proto.Message, error) { return stageRequest(everything, v, secret) },
			"publish":   func() (proto.Message, error) { return publishRequest(everything, v, m, secret) },
			"expand":    func() (proto.Message, error) { return expandRequest(everything, v, m, 1<<30) },
			"unpublish": func() (proto.Message, error) { return unpublishRequest(v, m) },
			"unstage":   func() (proto.Message, error) { return unstageRequest(v) },
			"stats":     func() (proto.Message, error) { return statsRequest(v, m) },
			"health":    func() (proto.Message, error) { return healthRequest(v, m.Target) },
		} {
			r, err := make()
			if err == nil {
				scribble(r.ProtoReflect())
			}
			if !reflect.DeepEqual(v, untouched) {
				t.Fatalf("%s of a volume, %s: the record is now %+v, want %+v", call, name, *v.Spec, *untouched.Spec)
			}
		}
	}
}

// scribble writes into every map and list of a message.
func scribble(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "secrets": // the caller owns them
		case f.IsMap():
			v.Map().Set(protoreflect.ValueOfString("added").MapKey(), protoreflect.ValueOfString("x"))
		case f.IsList():
			v.List().Set(0, protoreflect.ValueOfString("x"))
		case f.Message() != nil:
			scribble(v.Message())
		}
		return true
	})
}

// Items: I20, N-24.
func TestARequestThatLacksARequiredFieldIsNotMade(t *testing.T) {
	clear := func(f func(*state.Volume)) state.Volume { v := sample(); f(&v); return v }
	ok := sample().Mounts["pod-1"].MountSpec
	noTarget := ok
	noTarget.Target = ""
	noHandle := clear(func(v *state.Volume) { v.Spec.Handle = "" })
	noPath := clear(func(v *state.Volume) { v.Spec.StagePath = "" })
	badMode := clear(func(v *state.Volume) { v.Spec.Mode = "Tape" })
	badAccess := clear(func(v *state.Volume) { v.Spec.AccessModes = []state.AccessMode{"ReadNever"} })
	for name, c := range map[string]struct {
		make func() (proto.Message, error)
		want string
	}{
		"stage handle":     {func() (proto.Message, error) { return stageRequest(plainInfo, noHandle, nil) }, "volume handle"},
		"stage path":       {func() (proto.Message, error) { return stageRequest(plainInfo, noPath, nil) }, "staging path"},
		"stage mode":       {func() (proto.Message, error) { return stageRequest(plainInfo, badMode, nil) }, `volume mode "Tape"`},
		"stage access":     {func() (proto.Message, error) { return stageRequest(plainInfo, badAccess, nil) }, "access modes"},
		"publish handle":   {func() (proto.Message, error) { return publishRequest(plainInfo, noHandle, ok, nil) }, "volume handle"},
		"publish target":   {func() (proto.Message, error) { return publishRequest(plainInfo, sample(), noTarget, nil) }, "target path"},
		"publish path":     {func() (proto.Message, error) { return publishRequest(plainInfo, noPath, ok, nil) }, "staging path"},
		"publish mode":     {func() (proto.Message, error) { return publishRequest(plainInfo, badMode, ok, nil) }, "volume mode"},
		"unpublish handle": {func() (proto.Message, error) { return unpublishRequest(noHandle, ok) }, "volume handle"},
		"unpublish target": {func() (proto.Message, error) { return unpublishRequest(sample(), noTarget) }, "target path"},
		"unstage path":     {func() (proto.Message, error) { return unstageRequest(noPath) }, "staging path"},
		"expand handle":    {func() (proto.Message, error) { return expandRequest(plainInfo, noHandle, ok, 1) }, "volume handle"},
		"expand size":      {func() (proto.Message, error) { return expandRequest(plainInfo, sample(), ok, -1) }, "negative"},
		"expand target":    {func() (proto.Message, error) { return expandRequest(plainInfo, sample(), noTarget, 1) }, "volume path"},
		"expand access":    {func() (proto.Message, error) { return expandRequest(plainInfo, badAccess, ok, 1) }, "access modes"},
		"stats target":     {func() (proto.Message, error) { return statsRequest(sample(), noTarget) }, "volume path"},
	} {
		if _, err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", name, err, c.want)
		}
	}
}

// Items: F13, N-46.
// Sidecars: SA-12, SP-13.
func TestAccessModesAreMappedAsTheKubeletAndTheProvisionerDo(t *testing.T) {
	const (
		writer      = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		multiWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		onlyWriter  = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		readers     = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
		many        = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	)
	type modes = []state.AccessMode
	for _, c := range []struct {
		modes         modes
		without, with csi.VolumeCapability_AccessMode_Mode
	}{
		{modes{state.ReadWriteOnce}, writer, multiWriter},
		{modes{state.ReadWriteOncePod}, writer, onlyWriter},
		{modes{state.ReadOnlyMany}, readers, readers},
		{modes{state.ReadWriteMany}, many, many},
		{nil, writer, multiWriter},
		{modes{state.ReadWriteOnce, state.ReadWriteMany}, many, many},
		{modes{state.ReadOnlyMany, state.ReadWriteOnce}, readers, readers},
		{modes{state.ReadWriteOnce, state.ReadOnlyMany}, writer, multiWriter},
		{modes{state.ReadWriteOncePod, state.ReadWriteMany}, writer, onlyWriter},
	} {
		for with, want := range map[bool]csi.VolumeCapability_AccessMode_Mode{false: c.without, true: c.with} {
			if got, err := accessMode(c.modes, with); err != nil || got != want {
				t.Errorf("%q, SINGLE_NODE_MULTI_WRITER %v: got %v, %v; want %v", c.modes, with, got, err, want)
			}
		}
	}
	if _, err := accessMode(modes{"ReadNever"}, true); err == nil {
		t.Error("an unknown mode was mapped")
	}
}

// Items: N-23, N-36, N-90.
func TestLimitsOfCSIAreChecked(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	stage := func(f func(*csi.NodeStageVolumeRequest)) proto.Message {
		r := &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/p"}
		f(r)
		return r
	}
	mount := func(c *csi.VolumeCapability_MountVolume) proto.Message {
		return stage(func(r *csi.NodeStageVolumeRequest) {
			r.VolumeCapability = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: c}}
		})
	}
	for name, c := range map[string]struct {
		m    proto.Message
		want string // "" for no error
	}{
		"volume_id of 1024":     {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = long(1024) }), ""},
		"volume_id of 1025":     {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = long(1025) }), "volume_id: 1025 bytes"},
		"path of 4000":          {stage(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "/" + long(4000) }), ""},
		"fs_type of 129":        {mount(&csi.VolumeCapability_MountVolume{FsType: long(129)}), "volume_capability.mount.fs_type"},
		"flag of 4096":          {mount(&csi.VolumeCapability_MountVolume{MountFlags: []string{long(4096)}}), ""},
		"flags of 4097":         {mount(&csi.VolumeCapability_MountVolume{MountFlags: []string{long(4000), long(97)}}), "mount_flags: 4097 bytes"},
		"flag not UTF-8":        {mount(&csi.VolumeCapability_MountVolume{MountFlags: []string{"\xff"}}), "mount_flags[0]: not valid UTF-8"},
		"context of 4096":       {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"k": long(4095)} }), ""},
		"context of 4097":       {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"k": long(4096)} }), ""},
		"context of 256 KiB":    {stage(func(r *csi.NodeStageVolumeRequest) { r.PublishContext = map[string]string{"k": long(maxGiven - 1)} }), ""},
		"more than that":        {stage(func(r *csi.NodeStageVolumeRequest) { r.PublishContext = map[string]string{"k": long(maxGiven)} }), "publish_context: 262145 bytes"},
		"secrets of 5 KiB":      {stage(func(r *csi.NodeStageVolumeRequest) { r.Secrets = map[string]string{"k": long(5 << 10)} }), ""},
		"parameters of 4097":    {&csi.CreateVolumeRequest{Parameters: map[string]string{"k": long(4096)}}, "parameters: 4097 bytes"},
		"secrets not UTF-8":     {stage(func(r *csi.NodeStageVolumeRequest) { r.Secrets = map[string]string{"key": "top\xffsecret"} }), `secrets: the value of key "key"`},
		"handle not UTF-8":      {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = "\xff" }), "volume_id: not valid UTF-8"},
		"node_id of 256":        {&csi.ControllerPublishVolumeRequest{NodeId: long(256)}, ""},
		"node_id of 257":        {&csi.ControllerPublishVolumeRequest{NodeId: long(257)}, "node_id: 257 bytes"},
		"a list's messages too": {&csi.CreateVolumeRequest{VolumeCapabilities: []*csi.VolumeCapability{{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: long(129)}}}}}, "volume_capabilities[0].mount.fs_type"},
		"snapshot_id of 1024":   {&csi.DeleteSnapshotRequest{SnapshotId: long(1024)}, ""},
		"snapshot_id of 1025":   {&csi.DeleteSnapshotRequest{SnapshotId: long(1025)}, "snapshot_id: 1025 bytes"},
		"a list of strings":     {&csi.CreateVolumeGroupSnapshotRequest{SourceVolumeIds: []string{long(1024), long(1025)}}, "source_volume_ids[1]: 1025 bytes"},
		"ids of 64 snapshots":   {&csi.DeleteVolumeGroupSnapshotRequest{SnapshotIds: slices.Repeat([]string{long(180)}, 64)}, ""},
		"a group's name of 129": {&csi.CreateVolumeGroupSnapshotRequest{Name: long(129)}, "name: 129 bytes"},
	} {
		err := checkLimits(c.m)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret\xff") || strings.Contains(err.Error(), "top")) {
			t.Errorf("%s: the error has a value in it: %v", name, err)
		}
	}
}
