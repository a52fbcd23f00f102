package translate_test

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

func ptr[T any](v T) *T { return &v }

// mons is the MD5 of "a:6789,b:6789".
const mons = "32a4b0bf4066824637da6a6ed73d913d"

// sources has one source of each kind, for a pod and for a PersistentVolume.
var sources = []struct {
	kind   string
	pod    corev1.VolumeSource
	volume corev1.PersistentVolumeSource
	driver string
	// Handles; they differ if the library makes them from the object's name.
	podHandle, volumeHandle string
}{
	{
		"awsElasticBlockStore",
		corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-1a/vol-1", ReadOnly: true}},
		corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-1a/vol-1", ReadOnly: true}},
		"ebs.csi.aws.com", "vol-1", "vol-1",
	},
	{
		"azureDisk",
		corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s/disks/d", ReadOnly: ptr(true)}},
		corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s/disks/d", ReadOnly: ptr(true)}},
		"disk.csi.azure.com", "/subscriptions/s/disks/d", "/subscriptions/s/disks/d",
	},
	{
		"azureFile",
		corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share", ReadOnly: true}},
		corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share", SecretNamespace: ptr("default"), ReadOnly: true}},
		"file.csi.azure.com", "#acc#share#name#default", "#acc#share#name#default",
	},
	{
		"cephfs",
		corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{Monitors: []string{"a:6789", "b:6789"}, SecretRef: &corev1.LocalObjectReference{Name: "s"}, ReadOnly: true}},
		corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{Monitors: []string{"a:6789", "b:6789"}, Path: "/a/b", SecretRef: &corev1.SecretReference{Name: "s", Namespace: "n"}, ReadOnly: true}},
		"cephfs.csi.ceph.com", "intree-" + mons + "-2f", "intree-" + mons + "-2f612f62",
	},
	{
		"cinder",
		corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{VolumeID: "c-1", ReadOnly: true}},
		corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "c-1", ReadOnly: true}},
		"cinder.csi.openstack.org", "c-1", "c-1",
	},
	{
		"gcePersistentDisk",
		corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "pd-1", ReadOnly: true}},
		corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "pd-1", ReadOnly: true}},
		"pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd-1", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd-1",
	},
	{
		"portworxVolume",
		corev1.VolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "px-1", ReadOnly: true}},
		corev1.PersistentVolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "px-1", ReadOnly: true}},
		"pxd.portworx.com", "px-1", "px-1",
	},
	{
		"rbd",
		corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{CephMonitors: []string{"a:6789", "b:6789"}, RBDImage: "disk", SecretRef: &corev1.LocalObjectReference{Name: "s"}, ReadOnly: true}},
		corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{"a:6789", "b:6789"}, RBDPool: "kube", RBDImage: "kubernetes-dynamic-pvc-u-1", SecretRef: &corev1.SecretReference{Name: "s", Namespace: "n"}, ReadOnly: true}},
		"rbd.csi.ceph.com", "disk", "mig_mons-" + mons + "_image-u-1_6b756265",
	},
	{
		"vsphereVolume",
		corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] v.vmdk"}},
		corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] v.vmdk"}},
		"csi.vsphere.vmware.com", "[ds] v.vmdk", "[ds] v.vmdk",
	},
}

// Items: P01.
func TestEveryKindBecomesItsCSISource(t *testing.T) {
	var kinds []string
	for _, s := range sources {
		kinds = append(kinds, s.kind)
		readOnly := s.kind != "vsphereVolume" // vsphereVolume has no such field
		t.Run(s.kind, func(t *testing.T) {
			if !translate.Has(s.kind) {
				t.Errorf("Has(%q) is false", s.kind)
			}
			inline, err := translate.Inline(&corev1.Volume{Name: "name", VolumeSource: s.pod}, "default")
			check(t, "Inline", inline, err, s.driver, s.podHandle, readOnly)
			volume, err := translate.Volume(&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "name"},
				Spec: corev1.PersistentVolumeSpec{
					PersistentVolumeSource: s.volume,
					AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					MountOptions:           []string{"noatime"},
				},
			})
			check(t, "Volume", volume, err, s.driver, s.volumeHandle, readOnly)
			if err == nil && (volume.Name != "name" || !slices.Equal(volume.Spec.MountOptions, []string{"noatime"})) {
				t.Errorf("Volume: the name or the mount options were lost: %+v", volume)
			}
		})
	}
	if !slices.Equal(kinds, translate.Kinds()) {
		t.Errorf("Kinds: got %v, want %v", translate.Kinds(), kinds)
	}
}

func check(t *testing.T, what string, pv *corev1.PersistentVolume, err error, driver, handle string, readOnly bool) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if c := pv.Spec.CSI; c.Driver != driver || c.VolumeHandle != handle || c.ReadOnly != readOnly {
		t.Errorf("%s: got driver %q, handle %q, read only %v, want %q, %q, %v", what, c.Driver, c.VolumeHandle, c.ReadOnly, driver, handle, readOnly)
	}
}

func TestInputIsNotChanged(t *testing.T) {
	v := &corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "p", StoragePolicyName: "gold"}}}
	before := v.DeepCopy()
	if _, err := translate.Inline(v, "default"); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v, before) {
		t.Errorf("the pod's source is %+v", v)
	}
}

func TestOtherKindsAreRefused(t *testing.T) {
	if translate.Has("nfs") {
		t.Error(`Has("nfs") is true`)
	}
	if _, err := translate.Inline(&corev1.Volume{Name: "v"}, "default"); err == nil {
		t.Error("a volume without a source was translated")
	}
	if _, err := translate.Volume(&corev1.PersistentVolume{}); err == nil {
		t.Error("a PersistentVolume without a source was translated")
	}
}
