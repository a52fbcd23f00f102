package resolve_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const wantVolumeName = "to use an existing PersistentVolume, name it in spec.volumeName, or the claim in its spec.claimRef"

// problems has the defects of testdata/base.yaml that the tests make, and the problem that each gives.
var problems = []struct {
	name string
	make func(t *testing.T, w *world)
	want string
}{
	{
		"claim not found", func(_ *testing.T, w *world) { w.drop("PersistentVolumeClaim", "default", "data") },
		"claim default/data: not found",
	},
	{"claim being deleted", func(_ *testing.T, w *world) {
		w.claim().DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	}, "claim default/data: being deleted since 2026-01-02T03:04:05Z (metadata.deletionTimestamp)"},
	{
		"claim pending in a cluster", func(_ *testing.T, w *world) { w.claim().Status.Phase = corev1.ClaimPending },
		"claim default/data: not bound: status.phase: found Pending, want Bound",
	},
	{
		"claim lost", func(_ *testing.T, w *world) { w.claim().Status.Phase = corev1.ClaimLost },
		"claim default/data: not bound: status.phase: found Lost, want Bound",
	},
	{
		"claim pending with a note", func(_ *testing.T, w *world) {
			w.claim().Status.Phase, w.chosen.Note = corev1.ClaimPending, "CreateVolume: no space"
		},
		"claim default/data: not bound yet: CreateVolume: no space",
	},
	{"bound without a volume's name", func(_ *testing.T, w *world) {
		w.claim().Status.Phase, w.claim().Spec.VolumeName = corev1.ClaimBound, ""
	}, "claim default/data: spec.volumeName: found none, want the volume's name, since status.phase is Bound"},
	{
		"volume not found", func(_ *testing.T, w *world) { w.drop("PersistentVolume", "", "pv-1") },
		"claim default/data: spec.volumeName: found pv-1, but there is no such volume",
	},
	{
		"claimRef of another claim", func(_ *testing.T, w *world) { w.volume().Spec.ClaimRef.Name = "other" },
		"volume pv-1: spec.claimRef: found claim default/other, want claim default/data, whose spec.volumeName names this volume",
	},
	{
		"claimRef of an earlier claim", func(_ *testing.T, w *world) { w.volume().Spec.ClaimRef.UID = "old" },
		"volume pv-1: spec.claimRef.uid: found old, want claim-uid, the uid of claim default/data",
	},
	{"no claimRef in a cluster", func(_ *testing.T, w *world) {
		w.volume().Spec.ClaimRef, w.claim().Status.Phase = nil, corev1.ClaimBound
	}, "volume pv-1: spec.claimRef: found none, want claim default/data, which is bound to it"},
	{"claims that name one volume", func(t *testing.T, w *world) {
		w.volume().Spec.ClaimRef = nil
		w.add(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: zoo}, spec: {volumeName: pv-1}}")
	}, "volume pv-1: claims default/data, default/zoo all name it in spec.volumeName; want its spec.claimRef to say which one has it"},
	{"volumes that name one claim", func(t *testing.T, w *world) {
		w.claim().Spec.VolumeName = ""
		w.add(t, "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-2}, spec: {claimRef: {namespace: default, name: data}, csi: {driver: d, volumeHandle: h}}}")
	}, "claim default/data: volumes pv-1, pv-2 all name it in spec.claimRef; want its spec.volumeName to say which one it has"},
	{"only a volume of an earlier claim", func(_ *testing.T, w *world) {
		w.claim().Spec.VolumeName, w.volume().Spec.ClaimRef.UID = "", "old"
	}, "volume pv-1: spec.claimRef.uid: found old, want claim-uid, the uid of claim default/data"},
	{"a chosen volume whose claimRef names another claim", func(_ *testing.T, w *world) {
		w.claim().Spec.VolumeName, w.volume().Spec.ClaimRef.Name = "", "other"
		w.chosen = resolve.Binding{Volume: "pv-1", Storage: resolve.Storage(w.volume())}
	}, "claim default/data: its volume pv-1 names claim default/other in spec.claimRef; remove that, or delete the claim"},
	{"nothing to bind to", func(_ *testing.T, w *world) {
		w.claim().Spec.VolumeName, w.volume().Spec.ClaimRef = "", nil
	}, "claim default/data: not bound yet: no volume without a class was chosen for it; " + wantVolumeName},
	{"no such class", func(_ *testing.T, w *world) {
		w.claim().Spec.VolumeName, w.volume().Spec.ClaimRef, w.claim().Spec.StorageClassName = "", nil, ptr("fast")
	}, "claim default/data: not bound: spec.storageClassName: found fast, but there is no such class; " + wantVolumeName},
	{"a class that makes none", func(t *testing.T, w *world) {
		w.claim().Spec.VolumeName, w.volume().Spec.ClaimRef, w.claim().Spec.StorageClassName = "", nil, ptr("fast")
		w.add(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: "+resolve.NoProvisioner+"}")
	}, "claim default/data: not bound yet: class fast makes no volumes (provisioner kubernetes.io/no-provisioner), and none was chosen for it; " + wantVolumeName},
	{"waiting for the driver", func(t *testing.T, w *world) {
		w.claim().Spec.VolumeName, w.volume().Spec.ClaimRef, w.claim().Spec.StorageClassName = "", nil, ptr("fast")
		w.add(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: csi.example.com}")
	}, "claim default/data: not bound yet: driver csi.example.com is to make a volume of class fast"},
	{"waiting for the driver, with a note", func(_ *testing.T, w *world) {
		w.claim().Spec.VolumeName, w.volume().Spec.ClaimRef, w.chosen.Note = "", nil, "waiting for driver csi.example.com to register"
	}, "claim default/data: not bound yet: waiting for driver csi.example.com to register"},
	{
		"block mounted as a directory", func(_ *testing.T, w *world) { w.volume().Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) },
		"volume pv-1 has volumeMode Block, but is specified in volumeMounts: spec.containers[0].volumeMounts[0] of pod default/web needs one with volumeMode Filesystem, or move it to volumeDevices",
	},
	{"file system used as a device", func(_ *testing.T, w *world) {
		c := &w.pod().Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
	}, "volume pv-1 has volumeMode Filesystem, but is specified in volumeDevices: spec.containers[0].volumeDevices[0] of pod default/web needs one with volumeMode Block, or move it to volumeMounts"},
	{
		"unknown volume mode", func(_ *testing.T, w *world) { w.volume().Spec.VolumeMode = ptr(corev1.PersistentVolumeMode("Object")) },
		"volume pv-1: spec.volumeMode: found Object, want Filesystem or Block",
	},
	{"unknown access mode", func(_ *testing.T, w *world) {
		w.volume().Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"RWO"}
	}, "volume pv-1: spec.accessModes[0]: found RWO, want ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod"},
	{"driver without persistent volumes", func(_ *testing.T, w *world) {
		w.driver(storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}})
	}, "volume pv-1: CSIDriver csi.example.com: spec.volumeLifecycleModes: found [Ephemeral], want Persistent among them"},
	{"kind of volume that csi-volmgr has not", func(_ *testing.T, w *world) {
		w.volume().Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}}
	}, "volume pv-1: spec.nfs: volumes of kind nfs are not served on this node; want one of awsElasticBlockStore, azureDisk, azureFile, cephfs, cinder, csi, gcePersistentDisk, portworxVolume, rbd, vsphereVolume"},
	{
		"two sources", func(_ *testing.T, w *world) { w.volume().Spec.NFS = &corev1.NFSVolumeSource{} },
		"volume pv-1: spec: found 2 sources (csi, nfs), want exactly one",
	},
	{
		"no source", func(_ *testing.T, w *world) { w.volume().Spec.CSI = nil },
		"volume pv-1: spec: found 0 sources (), want exactly one",
	},
	{"source that does not translate", func(_ *testing.T, w *world) {
		w.volume().Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s", ShareName: "s"}}
		w.volume().Spec.ClaimRef.Namespace = "default"
		w.volume().Spec.PersistentVolumeSource.AzureFile.SecretNamespace = ptr("")
	}, "volume pv-1: spec.azureFile: translate to CSI: secretNamespace: "},
	{
		"bad driver name", func(_ *testing.T, w *world) { w.source().Driver = "../x" },
		`volume pv-1: spec.csi.driver: found "../x", want a driver name: 1 to 63 letters, digits, dashes and dots, a letter or digit first and last`,
	},
	{
		"no handle", func(_ *testing.T, w *world) { w.source().VolumeHandle = "" },
		`volume pv-1: spec.csi.volumeHandle: found "", want the volume's id as its driver knows it`,
	},
	{
		"handle with NUL", func(_ *testing.T, w *world) { w.source().VolumeHandle = "a\x00b" },
		`volume pv-1: spec.csi.volumeHandle: found "a\x00b", want UTF-8 without NUL`,
	},
	{
		"handle too long", func(_ *testing.T, w *world) { w.source().VolumeHandle = strings.Repeat("h", state.MaxHandle+1) },
		`volume pv-1: spec.csi.volumeHandle: found "` + strings.Repeat("h", 80) + `"... (1025 bytes), want at most 1024 bytes, not 1025`,
	},
	{
		"mount option with a line break", func(_ *testing.T, w *world) { w.volume().Spec.MountOptions = []string{"ro\nrw"} },
		`volume pv-1: spec.mountOptions[0]: found "ro\nrw", want at most 4096 bytes of UTF-8 without control characters`,
	},
	{"mount options too long", func(_ *testing.T, w *world) {
		w.volume().Spec.MountOptions = []string{strings.Repeat("a", 4096), "b"}
	}, `volume pv-1: spec.mountOptions: found "4097 bytes", want at most 4096 bytes in all`},
	{
		"fsType too long", func(_ *testing.T, w *world) { w.source().FSType = strings.Repeat("x", 129) },
		`volume pv-1: spec.csi.fsType: found "` + strings.Repeat("x", 80) + `"... (129 bytes), want at most 128 bytes of UTF-8 without control characters`,
	},
	{"node's key in a volume's attributes", func(_ *testing.T, w *world) {
		w.source().VolumeAttributes = map[string]string{"CSI.storage.k8s.io/Pod.Name": "x"}
	}, `volume pv-1: spec.csi.volumeAttributes: found "CSI.storage.k8s.io/Pod.Name", want no key that only the node sets (csi.storage.k8s.io/)`},
	{
		"secret without a namespace", func(_ *testing.T, w *world) { w.source().NodeStageSecretRef = &corev1.SecretReference{Name: "s"} },
		`volume pv-1: spec.csi.nodeStageSecretRef.namespace: found "", want 1 to 63 lower-case letters, digits and dashes, a letter or digit first and last`,
	},
	{"secret with a path for a name", func(_ *testing.T, w *world) {
		w.source().NodePublishSecretRef = &corev1.SecretReference{Namespace: "default", Name: "../s"}
	}, `volume pv-1: spec.csi.nodePublishSecretRef.name: found "../s", want 1 to 253 lower-case letters, digits, dashes and dots, a letter or digit first and last`},
	{
		"pod uid that is a path", func(_ *testing.T, w *world) { w.pod().UID = "../../etc" },
		`pod default/web: metadata.uid: found "../../etc", want 1 to 63 letters, digits and dashes, a letter or digit first and last`,
	},
	{
		"pod uid of 4 KiB", func(_ *testing.T, w *world) { w.pod().UID = types.UID(strings.Repeat("a", 4096)) },
		`pod default/web: metadata.uid: found "` + strings.Repeat("a", 80) + `"... (4096 bytes), want at most 253 bytes of UTF-8 without control characters`,
	},
	{
		"volume name that is a path", func(_ *testing.T, w *world) { rename(w, "../x") },
		`pod default/web: spec.volumes[0].name: found "../x", want 1 to 63 lower-case letters, digits and dashes, a letter or digit first and last`,
	},
	{
		"volume name with NUL", func(_ *testing.T, w *world) { rename(w, "a\x00") },
		`pod default/web: spec.volumes[0].name: found "a\x00", want 1 to 63 lower-case letters, digits and dashes, a letter or digit first and last`,
	},
	{
		"mount of no volume", func(_ *testing.T, w *world) { w.pod().Spec.Volumes = nil },
		"pod default/web: spec.containers[0].volumeMounts[0].name: found data, want the name of one of the pod's spec.volumes",
	},
	{"two volumes of one name", func(_ *testing.T, w *world) {
		w.pod().Spec.Volumes = append(w.pod().Spec.Volumes, w.pod().Spec.Volumes[0])
	}, "pod default/web: spec.volumes[1].name: found data, want a name that no other volume of the pod has"},
	{"kind that csi-volmgr has not", func(_ *testing.T, w *world) {
		source(w, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
	}, "pod default/web: spec.volumes[0]: volumes of kind hostPath are not served on this node; want one of awsElasticBlockStore, azureDisk, azureFile, cephfs, cinder, configMap, csi, emptyDir, ephemeral, gcePersistentDisk, persistentVolumeClaim, portworxVolume, rbd, vsphereVolume"},
	{"built-in kind that is not served", func(_ *testing.T, w *world) {
		source(w, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		w.config.Builtins = nil
	}, "pod default/web: spec.volumes[0]: volumes of kind emptyDir are not served on this node; want one of awsElasticBlockStore, azureDisk, azureFile, cephfs, cinder, csi, ephemeral, gcePersistentDisk, persistentVolumeClaim, portworxVolume, rbd, vsphereVolume"},
	{"two kinds in one volume", func(_ *testing.T, w *world) {
		w.pod().Spec.Volumes[0].EmptyDir = &corev1.EmptyDirVolumeSource{}
	}, `pod default/web: spec.volumes[0]: found "emptyDir and persistentVolumeClaim", want exactly one kind of volume`},
	{"directory used as a device", func(_ *testing.T, w *world) {
		source(w, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		w.pod().Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data"}}
	}, `pod default/web: spec.containers[0].volumeDevices[0]: volume "data" is of kind emptyDir, which is no raw block volume; want it under volumeMounts`},
	{"claim of an ephemeral volume not found", func(_ *testing.T, w *world) {
		source(w, corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
	}, "claim default/web-data: not found; the claim of a generic ephemeral volume has the pod's and the volume's name and the pod as its controller"},
	{"claim of an ephemeral volume without a pod", func(t *testing.T, w *world) {
		source(w, corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
		w.add(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: web-data}, spec: {volumeName: pv-1}}")
	}, "claim default/web-data: metadata.ownerReferences: found no controller, want pod default/web (uid 11111111-2222-3333-4444-555555555555) with controller: true, since it serves a generic ephemeral volume"},
	{"claim of another pod's ephemeral volume", func(t *testing.T, w *world) {
		source(w, corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
		w.add(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: web-data, ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: old, controller: true}]}, spec: {volumeName: pv-1}}")
	}, "claim default/web-data: metadata.ownerReferences: found Pod web (uid old), want pod default/web (uid 11111111-2222-3333-4444-555555555555) with controller: true, since it serves a generic ephemeral volume"},
	{
		"inline volume without a CSIDriver", func(_ *testing.T, w *world) { inline(w, corev1.CSIVolumeSource{}) },
		"pod default/web: spec.volumes[0].csi: CSIDriver csi.example.com: not found; an inline volume needs one with Ephemeral in spec.volumeLifecycleModes",
	},
	{"inline volume of a persistent driver", func(_ *testing.T, w *world) {
		inline(w, corev1.CSIVolumeSource{})
		w.driver(storagev1.CSIDriverSpec{})
	}, "pod default/web: spec.volumes[0].csi: CSIDriver csi.example.com: spec.volumeLifecycleModes: found [Persistent], want Ephemeral among them"},
	{"inline volume with a reserved key", func(_ *testing.T, w *world) {
		inline(w, corev1.CSIVolumeSource{VolumeAttributes: map[string]string{"csi.storage.k8s.io/pvc/name": "x"}})
	}, `pod default/web: spec.volumes[0].csi.volumeAttributes: found "csi.storage.k8s.io/pvc/name", want no key that only the node sets (csi.storage.k8s.io/)`},
	{"inline volume with a secret elsewhere", func(_ *testing.T, w *world) {
		inline(w, corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "other/secret"}})
	}, `pod default/web: spec.volumes[0].csi.nodePublishSecretRef.name: found "other/secret", want 1 to 253 lower-case letters, digits, dashes and dots, a letter or digit first and last`},
	{"source in the pod that does not translate", func(_ *testing.T, w *world) {
		source(w, corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: "u", Kind: ptr(corev1.AzureDedicatedBlobDisk)}})
	}, "pod default/web: spec.volumes[0].azureDisk: translate to CSI: kind: "},
	{"source that is not translated here", func(_ *testing.T, w *world) {
		w.config.Translate = []string{"rbd"}
		w.volume().Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "p"}}
	}, "volume pv-1: spec.vsphereVolume: volumes of kind vsphereVolume are not translated to their CSI driver on this node (--translate lists the kinds); want one of csi, rbd"},
	{"source in the pod that is not translated here", func(_ *testing.T, w *world) {
		w.config.Translate, w.config.Builtins = []string{}, nil
		source(w, corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "p"}})
	}, "pod default/web: spec.volumes[0]: volumes of kind vsphereVolume are not translated to their CSI driver on this node (--translate lists the kinds); want one of csi, ephemeral, persistentVolumeClaim"},
	{"emptyDir on an unknown medium", func(_ *testing.T, w *world) {
		source(w, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-x"}})
	}, `pod default/web: spec.volumes[0].emptyDir.medium: found HugePages-x, want "", Memory, HugePages or HugePages-<size>`},
	{
		"configMap not found", func(_ *testing.T, w *world) { configMap(w, corev1.ConfigMapVolumeSource{}) },
		"pod default/web: spec.volumes[0].configMap: configMap default/conf: not found; want it, or optional: true",
	},
	{"key of a configMap not found", func(t *testing.T, w *world) {
		w.add(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {a: b}}")
		configMap(w, corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: "c", Path: "c"}}})
	}, `pod default/web: spec.volumes[0].configMap: configMap default/conf: items[0].key "c": no such key; want it, or optional: true`},
	{"item that leads out of the volume", func(t *testing.T, w *world) {
		w.add(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {c: b}}")
		configMap(w, corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: "c", Path: "a/../../b"}}})
	}, `pod default/web: spec.volumes[0].configMap: configMap default/conf: items[0].path: path "a/../../b" contains "..": not a path within a volume`},
	{
		"mode of a file", func(_ *testing.T, w *world) {
			configMap(w, corev1.ConfigMapVolumeSource{DefaultMode: ptr(int32(0o1777))})
		},
		`pod default/web: spec.volumes[0].configMap: defaultMode: 01777 is not in 0 to 0777`,
	},
}

func rename(w *world, name string) {
	w.pod().Spec.Volumes[0].Name = name
	w.pod().Spec.Containers[0].VolumeMounts[0].Name = name
}

func source(w *world, s corev1.VolumeSource) { w.pod().Spec.Volumes[0].VolumeSource = s }

func inline(w *world, s corev1.CSIVolumeSource) {
	s.Driver = "csi.example.com"
	source(w, corev1.VolumeSource{CSI: &s})
}

func configMap(w *world, s corev1.ConfigMapVolumeSource) {
	s.Name = "conf"
	source(w, corev1.VolumeSource{ConfigMap: &s})
}

// Items: A17, A18, A20, B01, B02, B04, B05, B06, F22.
func TestProblemNamesObjectFieldFoundAndWanted(t *testing.T) {
	for _, p := range problems {
		t.Run(p.name, func(t *testing.T) {
			w := read(t, "testdata/base.yaml")
			p.make(t, w)
			got := w.only(t)
			if got.Problem != p.want && !(strings.HasSuffix(p.want, ": ") && strings.HasPrefix(got.Problem, p.want)) {
				t.Errorf("problem:\n got %s\nwant %s", got.Problem, p.want)
			}
			if got.ID != "" || got.Spec.Driver != "" || got.Mount.Target != "" {
				t.Errorf("a volume with a problem has more than its names: %+v", got)
			}
		})
	}
}

// Only the node sets the attributes that tell a driver about a pod: a volume or pod that sets one itself,
// in upper or lower case, is refused.
//
// Attacks: C17.
func TestAttackAttributesThatPoseAsPodInfo(t *testing.T) {
	for _, key := range []string{
		"csi.storage.k8s.io/pod.name", "csi.storage.k8s.io/pod.namespace", "csi.storage.k8s.io/pod.uid", "csi.storage.k8s.io/serviceAccount.name",
		"csi.storage.k8s.io/serviceAccount.tokens", "csi.storage.k8s.io/ephemeral", "CSI.Storage.K8s.IO/Ephemeral",
	} {
		attributes := map[string]string{"kind": "ssd", key: "x"}
		w := read(t, "testdata/base.yaml")
		w.source().VolumeAttributes = attributes
		if got := w.only(t); !strings.Contains(got.Problem, "only the node sets") || got.ID != "" {
			t.Errorf("%s in a PersistentVolume: %q", key, got.Problem)
		}
		w = read(t, "testdata/base.yaml")
		inline(w, corev1.CSIVolumeSource{VolumeAttributes: attributes})
		if got := w.only(t); !strings.Contains(got.Problem, "only the node sets") || got.ID != "" {
			t.Errorf("%s in a pod: %q", key, got.Problem)
		}
	}
}

// TestProblemHurtsNoOtherVolume: rule 5, and "harms nothing else".
// Items: B07.
func TestProblemHurtsNoOtherVolume(t *testing.T) {
	for _, p := range problems {
		w := read(t, "testdata/base.yaml")
		w.pod().Spec.Volumes = append([]corev1.Volume(nil), w.pod().Spec.Volumes...)
		p.make(t, w)
		pod := w.pod()
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "other", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "other"}}})
		if len(w.config.Builtins) == 0 || len(resolve.Check(pod)) > 0 && pod.UID != "11111111-2222-3333-4444-555555555555" {
			continue // the whole pod is refused
		}
		for _, v := range w.resolve().Volumes {
			if v.Names[0] == "other" && v.Problem != "" {
				t.Errorf("%s: the other volume: %s", p.name, v.Problem)
			}
		}
	}
}

// What a claim waits for is a code, on which advice depends.
func TestAClaimThatIsNotBoundHasACause(t *testing.T) {
	wanted := map[string]state.Cause{
		"claim not found": {}, "claim being deleted": {Code: state.ClaimGoes}, "claim pending in a cluster": {Code: state.ClusterBinds},
		"claims that name one volume": {Code: state.NoVolume}, "volumes that name one claim": {Code: state.NoVolume},
		"no such class": {Code: state.NoClass, Of: "fast"}, "a class that makes none": {Code: state.NoVolume},
	}
	found := 0
	for _, p := range problems {
		if want, ok := wanted[p.name]; ok {
			found++
			w := read(t, "testdata/base.yaml")
			p.make(t, w)
			if got := w.only(t).Cause; got != want {
				t.Errorf("%s: got %+v, want %+v", p.name, got, want)
			}
		}
	}
	if found != len(wanted) {
		t.Errorf("%d of %d were made", found, len(wanted))
	}
}
