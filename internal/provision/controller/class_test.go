package controller

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func allCaps() facts {
	return facts{Driver: driverFacts{
		Topology: map[string]string{"zone": "a"},
		caps:     caps{Controller: true, Topology: true, Create: true, Expand: true, Clone: true, Snapshot: true},
	}}
}

// Items: N-49.
// Sidecars: SP-02, SP-04, SP-08, SP-17, SP-21, SP-34, SP-40.
func TestWhatCannotBeAskedForIsTold(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, tt := range []struct {
		want   string
		change func(*Claim, *facts)
	}{
		{"it has no UID", func(c *Claim, _ *facts) { c.UID = "" }},
		{"a volume's name has at most 128", func(c *Claim, _ *facts) { c.UID = long }},
		{"asks for 0 bytes", func(c *Claim, _ *facts) { c.SizeBytes = 0 }},
		{"asks for -1 bytes", func(c *Claim, _ *facts) { c.SizeBytes = -1 }},
		{"limit of 1 bytes is below", func(c *Claim, _ *facts) { c.LimitBytes = 1 }},
		{"limit of -1 bytes is below", func(c *Claim, _ *facts) { c.LimitBytes = -1 }},
		{"names no access mode", func(c *Claim, _ *facts) { c.AccessModes = nil }},
		{`access mode "Sometimes" is not known`, func(c *Claim, _ *facts) { c.AccessModes = []state.AccessMode{"Sometimes"} }},
		{"cannot be combined with others", func(c *Claim, _ *facts) {
			c.AccessModes = []state.AccessMode{state.ReadWriteOncePod, state.ReadWriteOnce}
		}},
		{`volumeMode "Odd"`, func(c *Claim, _ *facts) { c.Mode = "Odd" }},
		{"csi.storage.k8s.io/other, which is reserved", param("csi.storage.k8s.io/other", "x")},
		{"csi.storage.k8s.io/odd-secret-name, which is reserved", param("csi.storage.k8s.io/odd-secret-name", "x")},
		{"without the other", param("csi.storage.k8s.io/node-stage-secret-name", "x")},
		{"without the other", param("csi.storage.k8s.io/node-stage-secret-namespace", "x")},
		{"has a template other than", params("node-stage-secret", "${pvc.annotations['x']}", "y")},
		{"has a template other than", func(c *Claim, f *facts) {
			c.Annotations = map[string]string{"x": "z"}
			params("node-stage-secret", "y", "${pvc.annotations['x']}")(c, f)
		}},
		{"has a template other than", func(c *Claim, f *facts) {
			c.Annotations = map[string]string{"x": "${pv.name}"}
			params("node-stage-secret", "${pvc.annotations['x']}", "y")(c, f)
		}},
		{"csi.storage.k8s.io/fstype and fsType; want one", param("fsType", "xfs")},
		{"FSTYPE and csi.storage.k8s.io/fstype; want one", param("FSTYPE", "xfs")},
		{"node-stage-secret-name and csiNodeStageSecretName; want one", func(c *Claim, f *facts) {
			params("node-stage-secret", "x", "y")(c, f)
			c.Class.Parameters["csiNodeStageSecretName"], c.Class.Parameters["csiNodeStageSecretNamespace"] = "x", "y"
		}},
		{"without the other", param("csi.storage.k8s.io/secret-name", "x")},
		{"without the other", param("csiNodeStageSecretNamespace", "x")},
		{"has a template other than", params("node-stage-secret", "y", "${node.name}")},
		{"it is empty", params("provisioner-secret", "", "y")},
		{"has allowedTopologies zone=b|c, and this node's topology is zone=a", func(c *Claim, _ *facts) {
			c.Class.Topologies = []map[string][]string{{"zone": {"b", "c"}}}
		}},
		{"has allowedTopologies rack=1,zone=a or zone=b, and this node's topology is zone=a", func(c *Claim, _ *facts) {
			c.Class.Topologies = []map[string][]string{{"zone": {"a"}, "rack": {"1"}}, {"zone": {"b"}}}
		}},
		{"this node's topology is not reported by driver", func(c *Claim, f *facts) {
			c.Class.Topologies, f.Driver.Topology = []map[string][]string{{"zone": {"a"}}}, nil
		}},
		{"cannot clone volumes", func(c *Claim, f *facts) {
			c.Source, f.Driver.caps.Clone = &DataSource{Claim: testKey("b")}, false
		}},
		{"cannot make volumes from snapshots", func(c *Claim, f *facts) {
			c.Source, f.Driver.caps.Snapshot = &DataSource{SnapshotHandle: "s"}, false
		}},
		{"no such thing as a tape", func(c *Claim, _ *facts) { c.Source = &DataSource{Unknown: "there is no such thing as a tape"} }},
		{"source is away", func(c *Claim, f *facts) {
			c.Source, f.Source.Problem = &DataSource{Claim: testKey("b")}, "source is away"
		}},
	} {
		c, f := testClaim("a", mib), allCaps()
		tt.change(&c, &f)
		if _, got := newSpec(c, f); !strings.Contains(got.reason, tt.want) {
			t.Errorf("got %q, want %q", got.reason, tt.want)
		}
	}
}

func param(key, value string) func(*Claim, *facts) {
	return func(c *Claim, _ *facts) { c.Class.Parameters[key] = value }
}

func params(secret, name, namespace string) func(*Claim, *facts) {
	return func(c *Claim, _ *facts) {
		c.Class.Parameters[reserved+secret+"-name"] = name
		c.Class.Parameters[reserved+secret+"-namespace"] = namespace
	}
}

// A claim cannot name a secret: only its class can, and the author of the class may use the secrets that it names.
//
// Attacks: C13.
// Sidecars: SP-03, SP-52.
func TestSecretsOfAClass(t *testing.T) {
	c := testClaim("a", mib)
	for _, p := range secretParameters {
		c.Class.Parameters[reserved+p+"-name"] = p + "-${pv.name}"
		c.Class.Parameters[reserved+p+"-namespace"] = "${pvc.namespace}-${pvc.name}"
	}
	s, problem := newSpec(c, allCaps())
	if problem.waits() {
		t.Fatal(problem)
	}
	ref := func(p string) state.SecretRef {
		return state.SecretRef{Namespace: "default-a", Name: p + "-secret-pvc-uid-a"}
	}
	want := secrets{
		Provision: ref("provisioner"), Attach: ref("controller-publish"), Stage: ref("node-stage"),
		Publish: ref("node-publish"), Expand: ref("controller-expand"), NodeExpand: ref("node-expand"),
		Modify: ref("controller-modify"),
	}
	if s.Secrets != want {
		t.Errorf("got %+v\nwant %+v", s.Secrets, want)
	}
	if diff := cmp.Diff(map[string]string{"kind": "ssd"}, s.Parameters); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

// A class's parameters mean what they mean to external-provisioner.
//
// Sidecars: SP-02, SP-03, SP-05, SP-08, SP-15.
func TestParametersOfVendors(t *testing.T) {
	const p = "csi.storage.k8s.io/"
	ref := func(name string) state.SecretRef { return state.SecretRef{Namespace: "n", Name: name} }
	for _, tt := range []struct {
		name       string
		parameters map[string]string
		driver     string // keys of the parameters that the driver gets
		fsType     string
		secrets    secrets
	}{
		{"the reserved key", map[string]string{p + "fstype": "xfs"}, "", "xfs", secrets{}},
		{"an old key", map[string]string{"fstype": "xfs"}, "fstype", "xfs", secrets{}},
		{"an old key in another case", map[string]string{"FSType": "xfs"}, "FSType", "xfs", secrets{}},
		{"the driver's default", map[string]string{"type": "ssd"}, "type", "ext4", secrets{}},
		{"an empty key", map[string]string{"fsType": ""}, "fsType", "ext4", secrets{}},
		{"one secret for all", map[string]string{p + "secret-name": "all", p + "secret-namespace": "n"}, "", "ext4", secrets{
			ref("all"), ref("all"), ref("all"), ref("all"), ref("all"), ref("all"), ref("all"),
		}},
		{"one secret for the others", map[string]string{
			p + "secret-name": "all", p + "secret-namespace": "n",
			p + "node-stage-secret-name": "own", p + "node-stage-secret-namespace": "n",
		}, "", "ext4", secrets{ref("all"), ref("all"), ref("own"), ref("all"), ref("all"), ref("all"), ref("all")}},
		{"names of before", map[string]string{
			"csiProvisionerSecretName": "a", "csiProvisionerSecretNamespace": "n",
			"csiControllerPublishSecretName": "b", "csiControllerPublishSecretNamespace": "n",
			"csiNodeStageSecretName": "c", "csiNodeStageSecretNamespace": "n",
			"csiNodePublishSecretName": "d", "csiNodePublishSecretNamespace": "n",
		}, "csiControllerPublishSecretName csiControllerPublishSecretNamespace csiNodePublishSecretName " +
			"csiNodePublishSecretNamespace csiNodeStageSecretName csiNodeStageSecretNamespace csiProvisionerSecretName " +
			"csiProvisionerSecretNamespace", "ext4", secrets{Provision: ref("a"), Attach: ref("b"), Stage: ref("c"), Publish: ref("d")}},
		{"an annotation of the claim", map[string]string{
			p + "provisioner-secret-name": "${pvc.annotations['acme.com/key']}-${pvc.name}", p + "provisioner-secret-namespace": "n",
		}, "", "ext4", secrets{Provision: ref("gold-a")}},
		{"a name of before and a namespace of now", map[string]string{
			"csiNodeStageSecretName": "c", p + "node-stage-secret-namespace": "n",
		}, "csiNodeStageSecretName", "ext4", secrets{Stage: ref("c")}},
		{"empty", map[string]string{p + "provisioner-secret-name": "", p + "provisioner-secret-namespace": ""}, "", "ext4", secrets{}},
	} {
		c := testClaim("a", mib)
		c.Class.Parameters, c.Class.FSType = tt.parameters, "ext4"
		c.Annotations = map[string]string{"acme.com/key": "gold"}
		s, problem := newSpec(c, allCaps())
		keys := strings.Join(slices.Sorted(maps.Keys(s.Parameters)), " ")
		if problem.waits() || keys != tt.driver || s.FSType != tt.fsType || s.Secrets != tt.secrets {
			t.Errorf("%s: %s; file system %q, secrets %+v, parameters %s", tt.name, problem.reason, s.FSType, s.Secrets, keys)
		}
	}
	c := testClaim("a", mib)
	c.Class.Parameters, c.Class.FSType, c.Mode = nil, "ext4", state.Block
	if s, _ := newSpec(c, allCaps()); s.FSType != "" {
		t.Errorf("the default of a raw device: %q", s.FSType)
	}
}

// ControllerModifyVolume has its own secret, or the provisioner's, as volumes of before have it.
//
// Sidecars: SP-52.
func TestTheSecretOfAModification(t *testing.T) {
	r := record{}
	r.Spec.Secrets.Provision = state.SecretRef{Name: "make"}
	if got := r.secretOf(modifyVolume).Name; got != "make" {
		t.Errorf("without its own: %s", got)
	}
	r.Spec.Secrets.Modify = state.SecretRef{Namespace: "n", Name: "modify"}
	if got, why := r.secretOf(modifyVolume).Name, r.noSecret("ControllerModifyVolume").Of; got != "modify" || why != "n/modify" {
		t.Errorf("with its own: %s, %s", got, why)
	}
}

// Items: N-14, N-49.
// Sidecars: SP-11, SP-13, SP-15, SP-26, SP-33, SP-40.
func TestCreateRequest(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Claim)
		multi  bool
		want   string
	}{
		{"filesystem", func(c *Claim) { c.Class.MountOptions = []string{"noatime"}; c.LimitBytes = 9 }, false, `
			name: "pvc-uid-a" capacity_range { required_bytes: 5 limit_bytes: 9 }
			volume_capabilities { mount { fs_type: "xfs" mount_flags: "noatime" } access_mode { mode: SINGLE_NODE_WRITER } }
			parameters { key: "kind" value: "ssd" } secrets { key: "k" value: "v" }
			accessibility_requirements { requisite { segments { key: "zone" value: "a" } } preferred { segments { key: "zone" value: "a" } } }`},
		{"block of a snapshot", func(c *Claim) {
			c.Mode, c.Source = state.Block, &DataSource{SnapshotHandle: "snap"}
			c.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
		}, true, `
			name: "pvc-uid-a" capacity_range { required_bytes: 5 }
			volume_capabilities { block {} access_mode { mode: SINGLE_NODE_SINGLE_WRITER } }
			volume_content_source { snapshot { snapshot_id: "snap" } }
			parameters { key: "kind" value: "ssd" } secrets { key: "k" value: "v" }
			accessibility_requirements { requisite { segments { key: "zone" value: "a" } } preferred { segments { key: "zone" value: "a" } } }`},
		{"clone, a writer and many readers", func(c *Claim) {
			c.Source = &DataSource{Claim: testKey("b")}
			c.AccessModes = []state.AccessMode{state.ReadWriteOnce, state.ReadOnlyMany}
		}, false, `
			name: "pvc-uid-a" capacity_range { required_bytes: 5 }
			volume_capabilities { mount { fs_type: "xfs" } access_mode { mode: SINGLE_NODE_WRITER } }
			volume_capabilities { mount { fs_type: "xfs" } access_mode { mode: MULTI_NODE_READER_ONLY } }
			volume_content_source { volume { volume_id: "vol-b" } }
			parameters { key: "kind" value: "ssd" } secrets { key: "k" value: "v" }
			accessibility_requirements { requisite { segments { key: "zone" value: "a" } } preferred { segments { key: "zone" value: "a" } } }`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, f := testClaim("a", 5), allCaps()
			tt.change(&c)
			f.Source.Handle = "vol-b"
			s, problem := newSpec(c, f)
			if problem.waits() {
				t.Fatal(problem)
			}
			got, err := createRequest(c.volumeName(), s, tt.multi, map[string]string{"k": "v"})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tt.want, got, &csi.CreateVolumeRequest{})
		})
	}
}

func compare(t *testing.T, text string, got, want proto.Message) {
	t.Helper()
	if err := prototext.Unmarshal([]byte(text), want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// A request that an earlier version began asks for one access mode, since a repeated call must be the same.
func TestARequestUnderWayKeepsItsAccessMode(t *testing.T) {
	w := want{Claim: testClaim("a", 5), Listed: true}
	w.Claim.AccessModes = []state.AccessMode{state.ReadWriteOnce, state.ReadOnlyMany}
	r := record{Name: "pvc-uid-a", Unanswered: true, Volume: state.Fact{Phase: state.Entering}}
	r.Spec = spec{Driver: "strict.example.com", SizeBytes: 5, AccessModes: w.Claim.AccessModes, Mode: state.Filesystem}
	for modes, r := range map[int]record{1: r, 2: {}} {
		o, h := next(r, w, allCaps(), time.Time{})
		req, err := createRequest("pvc-uid-a", o.spec, false, nil)
		if o.verb != createVolume || err != nil || len(req.GetVolumeCapabilities()) != modes {
			t.Errorf("%d: %v, %+v, %v, %v", modes, o.verb, h, req, err)
		}
	}
}

// Sidecars: SP-33.
func TestNoTopologyIsAskedForOfADriverWithoutIt(t *testing.T) {
	f := allCaps()
	f.Driver.caps.Topology = false
	s, _ := newSpec(testClaim("a", 5), f)
	req, err := createRequest("x", s, false, nil)
	if err != nil || req.GetAccessibilityRequirements() != nil {
		t.Errorf("requirements: %v, %v", req.GetAccessibilityRequirements(), err)
	}
}

// Items: N-50, N-103.
// Sidecars: SA-01, SA-04, SA-12, SA-16, SP-14, SR-01, SR-13.
func TestGrowAndAttachRequests(t *testing.T) {
	s, _ := newSpec(testClaim("a", 5), allCaps())
	grown, err := expandRequest(record{Handle: "h", Spec: s}, op{bytes: 7, limit: 8}, false, map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, `volume_id: "h" capacity_range { required_bytes: 7 limit_bytes: 8 } secrets { key: "k" value: "v" }
		volume_capability { mount { fs_type: "xfs" } access_mode { mode: SINGLE_NODE_WRITER } }`, grown, &csi.ControllerExpandVolumeRequest{})
	v := state.Volume{Spec: &state.Spec{
		Handle: "h", Mode: state.Filesystem, FSType: "ext4", MountFlags: []string{"ro"},
		AccessModes: []state.AccessMode{state.ReadOnlyMany}, Context: map[string]string{"c": "d"},
	}}
	attached, err := attachRequest(v, "node-1", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, `volume_id: "h" node_id: "node-1" volume_context { key: "c" value: "d" }
		volume_capability { mount { fs_type: "ext4" mount_flags: "ro" } access_mode { mode: MULTI_NODE_READER_ONLY } }`,
		attached, &csi.ControllerPublishVolumeRequest{})
}

// Sidecars: SA-12, SA-13, SR-13.
func TestAccessModeOfAMixedListIsItsFirst(t *testing.T) {
	for _, tt := range []struct {
		modes []state.AccessMode
		multi bool
		want  csi.VolumeCapability_AccessMode_Mode
	}{
		{nil, false, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{[]state.AccessMode{state.ReadWriteOnce}, true, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{[]state.AccessMode{state.ReadOnlyMany, state.ReadWriteOnce}, false, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
	} {
		if got, err := accessMode(tt.modes, tt.multi); err != nil || got != tt.want {
			t.Errorf("%v: %v, %v; want %v", tt.modes, got, err, tt.want)
		}
	}
	if _, err := accessMode([]state.AccessMode{"odd"}, false); err == nil {
		t.Error("an unknown mode is no error")
	}
}

// Sidecars: SP-09, SP-31, SP-33.
func TestAnswersAreChecked(t *testing.T) {
	node := map[string]string{"zone": "a", "rack": "1"}
	s := spec{SizeBytes: 5, LimitBytes: 9, Topology: node}
	at := func(segments ...map[string]string) (list []*csi.Topology) {
		for _, m := range segments {
			list = append(list, &csi.Topology{Segments: m})
		}
		return list
	}
	for _, tt := range []struct {
		name    string
		v       *csi.Volume
		err     string
		reject  string
		reverse func(*spec)
	}{
		{"good", &csi.Volume{VolumeId: "h", CapacityBytes: 7}, "", "", nil},
		{"size not told", &csi.Volume{VolumeId: "h"}, "", "", nil},
		{"no volume", nil, "without a volume_id", "", nil},
		{"no handle", &csi.Volume{CapacityBytes: 7}, "without a volume_id", "", nil},
		{"long handle", &csi.Volume{VolumeId: strings.Repeat("h", state.MaxHandle+1)}, "at most 1024", "", nil},
		{"long context", &csi.Volume{VolumeId: "h", VolumeContext: map[string]string{"k": strings.Repeat("v", maxContext)}}, "volume_context of 262145 bytes; at most 262144", "", nil},
		{"context at the limit", &csi.Volume{VolumeId: "h", VolumeContext: map[string]string{"k": strings.Repeat("v", maxContext-1)}}, "", "", nil},
		{"long topology", &csi.Volume{VolumeId: "h", AccessibleTopology: at(map[string]string{"a": strings.Repeat("v", maxContext-1)}, node)}, "accessible_topology of", "", nil},
		{"small", &csi.Volume{VolumeId: "h", CapacityBytes: 4}, "", "4 bytes where 5", nil},
		{"large", &csi.Volume{VolumeId: "h", CapacityBytes: 10}, "", "at most 9", nil},
		{"here", &csi.Volume{VolumeId: "h", AccessibleTopology: at(map[string]string{"zone": "b"}, map[string]string{"zone": "a"})}, "", "", nil},
		{"there", &csi.Volume{VolumeId: "h", AccessibleTopology: at(map[string]string{"zone": "a", "rack": "2"})}, "", "cannot reach", nil},
		{"odd key", &csi.Volume{VolumeId: "h", AccessibleTopology: at(map[string]string{"cell": ""})}, "", "cannot reach", nil},
		{"content lost", &csi.Volume{VolumeId: "h"}, "", "content source", func(s *spec) { s.Source.Volume = "x" }},
		{"snapshot lost", &csi.Volume{VolumeId: "h"}, "", "content source", func(s *spec) { s.Source.Snapshot = "x" }},
	} {
		s := s
		if tt.reverse != nil {
			tt.reverse(&s)
		}
		got, err := checkCreated(s, node, tt.v)
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)),
			tt.err == "" && err != nil,
			tt.reject == "" && got.reject != "", !strings.Contains(got.reject, tt.reject):
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		case err == nil && tt.reject == "" && got.capacityBytes < s.SizeBytes:
			t.Errorf("%s: capacity %d", tt.name, got.capacityBytes)
		}
	}
}

// Sidecars: SP-21, SP-34.
func TestAVolumeIsMadeInATopologyThatItsClassAllows(t *testing.T) {
	for _, places := range [][]map[string][]string{nil, {{"zone": {"b", "a"}}}, {{"zone": {"b"}}, {"zone": {"a"}}}, {{}}} {
		c := testClaim("a", mib)
		c.Class.Topologies = places
		if s, problem := newSpec(c, allCaps()); problem.waits() || s.Topology["zone"] != "a" {
			t.Errorf("%v: got %+v, %q", places, s, problem.reason)
		}
	}
}

// A claim with an unsupported field gets no volume. One that has a volume, or whose volume is being made, keeps it.
// All say why.
//
// Sidecars: SP-16.
func TestAClaimWithARefusedFieldGetsNoVolume(t *testing.T) {
	w := want{Claim: testClaim("a", mib), Listed: true}
	w.Claim.Refused = "spec.selector: found a=b, want none"
	if o, h := next(record{}, w, allCaps(), time.Time{}); o.verb != noVerb || !h.refused || h.reason != w.Claim.Refused {
		t.Errorf("new: got %v, %+v", o.verb, h)
	}
	made := record{Name: "v", CapacityBytes: mib, RequestedBytes: mib, Volume: state.Fact{Phase: state.Present}}
	if o, h := next(made, w, allCaps(), time.Time{}); o.verb != noVerb || h.reason == "" || !h.refused {
		t.Errorf("with a volume: got %v, %+v", o.verb, h)
	}
}

// Each reason why a claim has no volume says by a code who can act on it.
//
// Sidecars: SP-06, SP-07, SP-20, SP-27.
func TestEachReasonHasItsCause(t *testing.T) {
	const driver = "local.example.com"
	pending := func(change func(*Claim, *facts)) (record, want, facts) {
		c, f := testClaim("a", mib), allCaps()
		c.Class.Provisioner = driver
		change(&c, &f)
		return record{}, want{Claim: c, Listed: true}, f
	}
	for _, tt := range []struct {
		want   state.Cause
		change func(*Claim, *facts)
	}{
		{state.Cause{Code: state.NoClass, Of: "fast"}, func(c *Claim, _ *facts) { c.Class = Class{Name: "fast"} }},
		{state.Cause{Code: state.BadClaim}, func(c *Claim, _ *facts) { c.UID = "" }},
		{state.Cause{Code: state.BadClaim}, func(c *Claim, _ *facts) { c.Refused = "spec.selector" }},
		{state.Cause{Code: state.BadClaim}, func(c *Claim, _ *facts) { c.Source = &DataSource{Unknown: "a tape"} }},
		{state.Cause{Code: state.BadClass, Of: "fast"}, func(c *Claim, _ *facts) { c.Class.Name = "fast"; param("csi.storage.k8s.io/other", "x")(c, nil) }},
		{state.Cause{Code: state.DriverUnable, Of: driver}, func(_ *Claim, f *facts) { f.Driver.caps.Create = false }},
		{state.Cause{Code: state.DriverUnable, Of: driver}, func(c *Claim, f *facts) {
			c.Source, f.Driver.caps.Clone = &DataSource{Claim: testKey("b")}, false
		}},
		{state.Cause{Code: state.NoSource, Of: "default/b"}, func(c *Claim, f *facts) {
			c.Source, f.Source.Problem = &DataSource{Claim: testKey("b")}, "it has no volume"
		}},
		{state.Cause{Code: state.NoSnapshot, Of: "default/b"}, func(c *Claim, f *facts) {
			c.Source, f.Source.Problem = &DataSource{Snapshot: testKey("b")}, "it is not ready"
		}},
	} {
		r, w, f := pending(tt.change)
		if _, h := next(r, w, f, time.Now()); h.cause != tt.want || h.reason == "" {
			t.Errorf("%s: got %+v, want %+v", h.reason, h.cause, tt.want)
		}
	}
	e := &entry{}
	e.rec.Spec.Driver, e.rec.Spec.Secrets.Provision = driver, state.SecretRef{Namespace: "n", Name: "s"}
	e.rec.Volume = state.Fact{Phase: state.Entering, Failed: &state.Retry{Attempts: 1, Call: "CreateVolume", Reason: state.NoObject}}
	e.held.cause.Code = state.CallFailed
	if got := e.status().Cause; got != (state.Cause{Code: state.NoSecret, Of: "n/s"}) {
		t.Errorf("a secret that cannot be read: %+v", got)
	}
	e.rec.Volume.Failed.Reason = ""
	if got := e.status().Cause; got != (state.Cause{Code: state.CallFailed, Of: driver}) {
		t.Errorf("a failed call: %+v", got)
	}
}
