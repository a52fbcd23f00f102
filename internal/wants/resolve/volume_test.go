package resolve_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ofKind gives pv-1 of testdata/base.yaml another source.
func ofKind(t *testing.T, s corev1.PersistentVolumeSource) *world {
	t.Helper()
	w := read(t, "testdata/base.yaml")
	w.config.Builtins = []state.DriverName{kind.HostPath, kind.Local, kind.NFS}
	w.volume().Spec.PersistentVolumeSource = s
	w.volume().Spec.MountOptions = []string{"noatime"}
	return w
}

func localAt(path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
}

func nfsAt(server, path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: server, Path: path}}
}

// M16: the kind receives the fields of claim and volume.
// Items: M16.
func TestPersistentVolumesOfBuiltinKinds(t *testing.T) {
	for of, tc := range map[state.DriverName]struct {
		src      corev1.PersistentVolumeSource
		hostPath string
		flags    int
		config   string
	}{
		kind.HostPath: {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/"}}, "/srv", 0, `{"path":"/srv/"}`},
		kind.Local:    {localAt("/mnt/disk"), "", 1, `{"path":"/mnt/disk"}`},
		kind.NFS:      {nfsAt("2001:db8::1", "/export"), "", 1, `{"server":"2001:db8::1","path":"/export"}`},
	} {
		w := ofKind(t, tc.src)
		if of == kind.HostPath {
			w.volume().Spec.MountOptions = nil
		}
		w.pod().Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		got := w.only(t)
		if got.Problem != "" {
			t.Errorf("%s: %s", of, got.Problem)
			continue
		}
		if got.ID != state.SharedID(of, "pv-1") || got.Spec.Driver != of || got.Spec.Claim != "default/data" || got.Spec.Name != "pv-1" || !got.Spec.Builtin ||
			len(got.Spec.AccessModes) == 0 || got.Mount.Target != w.config.Layout.BuiltinTarget(of, state.PodUID(w.pod().UID), "pv-1") {
			t.Errorf("%s: got %+v", of, got)
		}
		if !got.Mount.ReadOnly || got.Mount.HostPath != tc.hostPath || len(got.Spec.MountFlags) != tc.flags || string(got.Spec.Config) != tc.config {
			t.Errorf("%s: got read-only %v, %q, %q, %s", of, got.Mount.ReadOnly, got.Mount.HostPath, got.Spec.MountFlags, got.Spec.Config)
		}
	}
}

// If a pod's claim is read-only, the volume is read-only for every kind, whatever the PersistentVolume says.
//
// Items: M16.
func TestAReadOnlyClaimReachesEveryKind(t *testing.T) {
	lun := int32(0)
	for of, src := range map[state.DriverName]corev1.PersistentVolumeSource{
		kind.HostPath:  {HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
		kind.Local:     localAt("/mnt/disk"),
		kind.NFS:       nfsAt("server", "/export"),
		kind.ISCSI:     {ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.x"}},
		kind.FC:        {FC: &corev1.FCVolumeSource{TargetWWNs: []string{"50060e80167021aa"}, Lun: &lun}},
		kind.CephFS:    {CephFS: &corev1.CephFSPersistentVolumeSource{Monitors: []string{"mon"}}},
		kind.GlusterFS: {Glusterfs: &corev1.GlusterfsPersistentVolumeSource{EndpointsName: "servers", Path: "data"}},
	} {
		w := ofKind(t, src)
		w.add(t, strings.ReplaceAll(glusterServers, "NAMESPACE", "default"))
		w.config.Builtins = []state.DriverName{of}
		w.volume().Spec.MountOptions = nil
		for _, readOnly := range []bool{false, true} {
			w.pod().Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = readOnly
			if got := w.only(t); got.Problem != "" || got.Spec.Driver != of || got.Mount.ReadOnly != readOnly {
				t.Errorf("%s: got %q, read-only %v, want %v", of, got.Problem, got.Mount.ReadOnly, readOnly)
			}
		}
	}
}

// Items: A31.
func TestMountOptionsOfAKindThatMountsNothing(t *testing.T) {
	w := ofKind(t, corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}})
	if got := w.only(t); got.Problem != "volume pv-1: spec.mountOptions: found noatime, want none, since nothing is mounted for a hostPath" || got.ID != "" {
		t.Errorf("got %+v", got)
	}
}

// The known labels of the node decide about a CSI volume's node affinity. The driver's topology decides about other
// labels by their values; any other operator on them is refused.
//
// Items: A30.
// Faults: A138.
func TestNodeAffinityOfACSIVolume(t *testing.T) {
	for name, tc := range map[string]struct {
		key     string
		op      corev1.NodeSelectorOperator
		value   string
		problem string
	}{
		"this node":           {corev1.LabelHostname, corev1.NodeSelectorOpIn, "node-1", ""},
		"another node":        {corev1.LabelHostname, corev1.NodeSelectorOpIn, "node-2", "none of its terms matches this node"},
		"not another node":    {corev1.LabelHostname, corev1.NodeSelectorOpNotIn, "node-2", ""},
		"the driver's labels": {"topology.example.com/zone", corev1.NodeSelectorOpIn, "a", ""},
		"not its labels": {
			"topology.example.com/zone", corev1.NodeSelectorOpNotIn, "a",
			"spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].operator: found NotIn for \"topology.example.com/zone\", want In, or no such term",
		},
	} {
		w := read(t, "testdata/base.yaml")
		w.volume().Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: tc.key, Operator: tc.op, Values: []string{tc.value}}},
		}}}}
		got := w.only(t).Problem
		if tc.problem == "" && got != "" || !strings.Contains(got, tc.problem) || tc.problem != "" && !strings.HasPrefix(got, "volume pv-1: spec.nodeAffinity.required: ") {
			t.Errorf("%s: got %q, want %q", name, got, tc.problem)
		}
	}
}

func TestRawBlockVolumeOfADevice(t *testing.T) {
	w := ofKind(t, localAt("/dev/disk/by-id/x"))
	block := corev1.PersistentVolumeBlock
	w.volume().Spec.VolumeMode = &block
	c := &w.pod().Spec.Containers[0]
	c.VolumeDevices, c.VolumeMounts = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}, nil
	got := w.only(t)
	if got.Problem != "" || got.Spec.Mode != state.Block || got.Mount.HostPath != "" || got.Mount.FSGroup != nil {
		t.Errorf("got %+v", got)
	}
	lun := int32(0)
	for _, source := range []corev1.PersistentVolumeSource{
		{FC: &corev1.FCVolumeSource{TargetWWNs: []string{"50060e80167021aa"}, Lun: &lun}}, {ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.x"}},
	} {
		w := ofKind(t, source)
		w.config.Builtins = []state.DriverName{kind.FC, kind.ISCSI}
		w.volume().Spec.VolumeMode = &block
		c := &w.pod().Spec.Containers[0]
		c.VolumeDevices, c.VolumeMounts = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}, nil
		if got := w.only(t); got.Problem != "" || got.Spec.Mode != state.Block || got.Spec.StagePath == "" || got.Mount.FSGroup != nil {
			t.Errorf("got %+v", got)
		}
	}
	w = ofKind(t, nfsAt("filer", "/"))
	w.volume().Spec.VolumeMode = &block
	c = &w.pod().Spec.Containers[0]
	c.VolumeDevices, c.VolumeMounts = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}, nil
	if got := w.only(t).Problem; got != "volume pv-1: spec.volumeMode: found Block, want Filesystem, since the kind has no raw block volumes" {
		t.Errorf("got %q", got)
	}
}

func TestBadSourcesOfBuiltinKindsAreNamed(t *testing.T) {
	for want, src := range map[string]corev1.PersistentVolumeSource{
		`volume pv-1: spec.local.path: found "disk"`:                   localAt("disk"),
		`volume pv-1: spec.local.path: found "/a/../b"`:                localAt("/a/../b"),
		`volume pv-1: spec.nfs.server: found "a;b"`:                    nfsAt("a;b", "/"),
		`volume pv-1: spec.nfs.server: found "-o"`:                     nfsAt("-o", "/"),
		`volume pv-1: spec.nfs.path: found "/..`:                       nfsAt("filer", "/../x"),
		`volume pv-1: spec.hostPath.path: found "x", want an absolute`: {HostPath: &corev1.HostPathVolumeSource{Path: "x"}},
	} {
		got := ofKind(t, src).only(t).Problem
		if !strings.HasPrefix(strings.ReplaceAll(got, "found x,", `found "x",`), strings.ReplaceAll(want, `found "disk"`, "found disk")) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// 5.4: a volume that belongs to another node is not mounted here.
// Items: A30, N-14.
func TestNodeAffinityKeepsAVolumeOnItsNode(t *testing.T) {
	term := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	const host = "kubernetes.io/hostname"
	for name, tc := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		here  bool
	}{
		"this node":        {[]corev1.NodeSelectorTerm{term(host, corev1.NodeSelectorOpIn, "node-0", "node-1")}, true},
		"another node":     {[]corev1.NodeSelectorTerm{term(host, corev1.NodeSelectorOpIn, "node-2")}, false},
		"not another":      {[]corev1.NodeSelectorTerm{term(host, corev1.NodeSelectorOpNotIn, "node-2")}, true},
		"not this":         {[]corev1.NodeSelectorTerm{term(host, corev1.NodeSelectorOpNotIn, "node-1")}, false},
		"any":              {[]corev1.NodeSelectorTerm{term(host, corev1.NodeSelectorOpExists)}, true},
		"none":             {[]corev1.NodeSelectorTerm{term(host, corev1.NodeSelectorOpDoesNotExist)}, false},
		"unknown label":    {[]corev1.NodeSelectorTerm{term("zone", corev1.NodeSelectorOpIn, "a")}, false},
		"not a number":     {[]corev1.NodeSelectorTerm{term(host, corev1.NodeSelectorOpGt, "1")}, false},
		"second term":      {[]corev1.NodeSelectorTerm{term("zone", corev1.NodeSelectorOpIn, "a"), term(host, corev1.NodeSelectorOpIn, "node-1")}, true},
		"term of nothing":  {[]corev1.NodeSelectorTerm{{}}, false},
		"no term":          {nil, false},
		"unknown operator": {[]corev1.NodeSelectorTerm{term(host, "Is", "node-1")}, false},
		"field": {[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}},
		}}}, true},
		"both must hold": {[]corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: host, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}, {Key: "zone", Operator: corev1.NodeSelectorOpExists},
		}}}, false},
	} {
		w := ofKind(t, localAt("/mnt/disk"))
		w.volume().Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: tc.terms}}
		got := w.only(t).Problem
		if (got == "") != tc.here || !tc.here && !strings.HasPrefix(got, "volume pv-1: spec.nodeAffinity.required: ") {
			t.Errorf("%s: got %q, want it here %v", name, got, tc.here)
		}
		const unknown = "].key: found zone, want kubernetes.io/hostname"
		if wrong := name == "unknown label" || name == "both must hold"; strings.Contains(got, unknown) != wrong {
			t.Errorf("%s: got %q; that a key is not known and in which field is to be said: %v", name, got, wrong)
		}
	}
}

func TestInlineNFS(t *testing.T) {
	w := ofKind(t, localAt("/x"))
	source(w, corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "filer", Path: "/export", ReadOnly: true}})
	got := w.only(t)
	if got.Problem != "" || got.Spec.Driver != kind.NFS || !got.Mount.ReadOnly || got.ID != state.PodVolumeID(kind.NFS, state.PodUID(w.pod().UID), "data") {
		t.Errorf("got %+v", got)
	}
	w.pod().Spec.Volumes[0].NFS.Server = "$(id)"
	if got := w.only(t).Problem; !strings.HasPrefix(got, `pod default/web: spec.volumes[0].nfs.server: found "$(id)"`) {
		t.Errorf("got %q", got)
	}
}

// C12: a handle is not a path.
// Items: F20.
// Attacks: C12.
func TestAttackHandleReachesNoPath(t *testing.T) {
	for _, handle := range []string{"../../..", "/", "a/../../b", "/etc/passwd", "%2e%2e", strings.Repeat("../", 300), "a\nb", "..data"} {
		w := read(t, "testdata/base.yaml")
		w.source().VolumeHandle = handle
		got := w.only(t)
		if got.Problem != "" {
			t.Errorf("%.20q: %s", handle, got.Problem)
		}
		for _, path := range []string{got.Spec.StagePath, got.Mount.Target, got.Mount.DevicePath} {
			if strings.Contains(path, "..") || path != "" && !strings.HasPrefix(path, "/r/") || strings.Contains(path, "passwd") {
				t.Errorf("%.20q: path %q", handle, path)
			}
		}
	}
}

// Items: M16.
func TestDisksOfTheNetworkAreStaged(t *testing.T) {
	lun := int32(3)
	for of, source := range map[state.DriverName]corev1.PersistentVolumeSource{
		kind.FC: {FC: &corev1.FCVolumeSource{TargetWWNs: []string{"50060e80167021aa"}, Lun: &lun, ReadOnly: true}},
		kind.ISCSI: {ISCSI: &corev1.ISCSIPersistentVolumeSource{
			TargetPortal: "192.0.2.1", IQN: "iqn.x", ReadOnly: true, SecretRef: &corev1.SecretReference{Namespace: "n", Name: "s"},
		}},
	} {
		w := ofKind(t, source)
		w.config.Builtins = []state.DriverName{kind.FC, kind.ISCSI}
		w.volume().Spec.MountOptions = []string{"noatime"}
		got := w.only(t)
		if want := w.config.Layout.BuiltinStagePath(of, state.SharedID(of, "pv-1")); got.Problem != "" || got.Spec.StagePath != want || !got.Mount.ReadOnly ||
			!slices.Equal(got.Spec.MountFlags, []string{"noatime"}) || got.SizeBytes == 0 {
			t.Errorf("%s: got %+v, want it staged at %s", of, got, want)
		}
		if of == kind.ISCSI && (got.Spec.StageRef != state.SecretRef{Namespace: "n", Name: "s"} || strings.Contains(string(got.Spec.Config), "secretRef")) {
			t.Errorf("got %+v, want the secret named in the spec only", got.Spec)
		}
	}
}

// A controller of the cluster attaches network disks, under a name that does not depend on the pod. Without a cluster
// they have no such name.
//
// Faults: A183.
func TestDisksOfTheNetworkAreAttachedByACluster(t *testing.T) {
	lun := int32(3)
	for want, source := range map[string]corev1.PersistentVolumeSource{
		"kubernetes.io/fc/[50060e80167021aa 50060e80167021ab]:3": {FC: &corev1.FCVolumeSource{TargetWWNs: []string{"50060e80167021aa", "50060e80167021ab"}, Lun: &lun}},
		"kubernetes.io/fc/[3600508b400105e210000900000490000]":   {FC: &corev1.FCVolumeSource{WWIDs: []string{"3600508b400105e210000900000490000"}}},
		"kubernetes.io/iscsi/192.0.2.1:iqn.x:5":                  {ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.x", Lun: 5}},
	} {
		for _, cluster := range []bool{true, false} {
			w := ofKind(t, source)
			w.config.Builtins = []state.DriverName{kind.FC, kind.ISCSI}
			w.config.ClusterAttach = cluster
			if !cluster {
				want = ""
			}
			if got := w.only(t); got.Problem != "" || got.Spec.AttachedAs(got.ID) != want {
				t.Errorf("cluster %v: got %+v, attached as %q, want %q", cluster, got, got.Spec.AttachedAs(got.ID), want)
			}
		}
	}
}

// A local volume has its capacity, so that it can grow; it has no stage.
//
// Items: M09.
func TestLocalVolumeHasItsCapacity(t *testing.T) {
	w := ofKind(t, localAt("/mnt/disk"))
	if got := w.only(t); got.Problem != "" || got.SizeBytes == 0 || got.Spec.StagePath != "" {
		t.Errorf("got %+v", got)
	}
}

func TestInlineDisksOfTheNetwork(t *testing.T) {
	w := ofKind(t, localAt("/x"))
	w.config.Builtins = []state.DriverName{kind.FC, kind.ISCSI}
	source(w, corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.x", SecretRef: &corev1.LocalObjectReference{Name: "s"}}})
	got := w.only(t)
	id := state.PodVolumeID(kind.ISCSI, state.PodUID(w.pod().UID), "data")
	if got.Problem != "" || got.ID != id || got.Spec.StagePath != w.config.Layout.BuiltinStagePath(kind.ISCSI, id) || got.Spec.StageRef.Name != "s" || got.Spec.StageRef.Namespace != w.pod().Namespace {
		t.Errorf("got %+v", got)
	}
	source(w, corev1.VolumeSource{FC: &corev1.FCVolumeSource{WWIDs: []string{"3x"}}})
	if got := w.only(t); got.Problem != "" || got.Spec.Driver != kind.FC || got.Spec.StagePath == "" {
		t.Errorf("got %+v", got)
	}
}

// The manager compares a CSI volume's labels of its driver's topology; terms that the node's name excludes are left
// out.
//
// Items: A30, N-14.
// Sidecars: SP-33.
func TestTopologyOfAVolume(t *testing.T) {
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	term := func(q ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: q}
	}
	exists := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpExists}
	type at = map[string][]string
	for name, c := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  []map[string][]string
	}{
		"one":            {[]corev1.NodeSelectorTerm{term(in("zone", "a", "b"), in("rack", "7"))}, []map[string][]string{at{"zone": {"a", "b"}, "rack": {"7"}}}},
		"two":            {[]corev1.NodeSelectorTerm{term(in("zone", "a")), term(in("zone", "b"))}, []map[string][]string{at{"zone": {"a"}}, at{"zone": {"b"}}}},
		"another node's": {[]corev1.NodeSelectorTerm{term(in("zone", "a"), in(corev1.LabelHostname, "node-2")), term(in("zone", "b"))}, []map[string][]string{at{"zone": {"b"}}}},
		"by name alone":  {[]corev1.NodeSelectorTerm{term(in("zone", "a")), term(in(corev1.LabelHostname, "node-1"))}, nil},
		"no values":      {[]corev1.NodeSelectorTerm{term(exists), term(in("zone", "b"))}, []map[string][]string{at{"zone": {"b"}}}},
	} {
		w := read(t, "testdata/base.yaml")
		w.volume().Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: c.terms}}
		if got := w.only(t); got.Problem != "" || !reflect.DeepEqual(got.Topology, c.want) {
			t.Errorf("%s: got %v (%s), want %v", name, got.Topology, got.Problem, c.want)
		}
	}
	if got := read(t, "testdata/base.yaml").only(t); got.Topology != nil {
		t.Errorf("without affinity: %v", got.Topology)
	}
}

// C27: a file system that no disk has is refused when the manifest is read, for each kind with an fsType, and for a
// pod's inline volume too.
//
// Attacks: C27.
func TestAttackFSTypeOfAManifestIsOneOfADisk(t *testing.T) {
	lun, proc := int32(0), "proc"
	for field, src := range map[string]corev1.PersistentVolumeSource{
		"spec.local.fsType": {Local: &corev1.LocalVolumeSource{Path: "/dev/sdb", FSType: &proc}},
		"spec.iscsi.fsType": {ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.x", FSType: proc}},
		"spec.fc.fsType":    {FC: &corev1.FCVolumeSource{TargetWWNs: []string{"50060e80167021aa"}, Lun: &lun, FSType: proc}},
	} {
		w := ofKind(t, src)
		w.config.Builtins = []state.DriverName{kind.Local, kind.FC, kind.ISCSI}
		if got := w.only(t); !strings.Contains(got.Problem, field+": found proc, want one of btrfs") {
			t.Errorf("%s: got %q", field, got.Problem)
		}
	}
	for of, src := range map[string]corev1.VolumeSource{
		"iscsi": {ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.x", FSType: proc}},
		"fc":    {FC: &corev1.FCVolumeSource{TargetWWNs: []string{"50060e80167021aa"}, Lun: &lun, FSType: proc}},
	} {
		w := ofKind(t, nfsAt("server", "/export"))
		w.config.Builtins = []state.DriverName{kind.FC, kind.ISCSI}
		w.pod().Spec.Volumes[0].VolumeSource = src
		if got := w.only(t); !strings.Contains(got.Problem, of+".fsType: found proc, want one of btrfs") {
			t.Errorf("%s: got %q", of, got.Problem)
		}
	}
}
