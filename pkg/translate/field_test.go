package translate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// attributes are the attributes of a volume, if it has any.
type attributes = map[string]string

// Every field of every kind that its driver understands reaches the driver, from a pod and
// from a PersistentVolume.
//
// Items: P01.
func TestEveryFieldReachesItsDriver(t *testing.T) {
	secret := func(namespace string) *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: namespace, Name: "azure-storage-account-acc-secret"}
	}
	px := &corev1.SecretReference{Namespace: "px", Name: "auth"}
	cached := corev1.AzureDataDiskCachingReadOnly
	aws := &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-1a/vol-1", FSType: "xfs", Partition: 2}
	disk := &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s/disks/d", FSType: ptr("xfs"), CachingMode: &cached, Kind: ptr(corev1.AzureManagedDisk)}
	gce := &corev1.GCEPersistentDiskVolumeSource{PDName: "pd-1", FSType: "xfs", Partition: 3}
	portworx := &corev1.PortworxVolumeSource{VolumeID: "px-1", FSType: "xfs"}
	vsphere := &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] v.vmdk", FSType: "xfs", StoragePolicyName: "gold"}
	for name, tc := range map[string]struct {
		pod          corev1.VolumeSource
		volume       corev1.PersistentVolumeSource
		want         corev1.CSIPersistentVolumeSource
		wantOfVolume func(*corev1.CSIPersistentVolumeSource) // if it differs
	}{
		"aws": {
			corev1.VolumeSource{AWSElasticBlockStore: aws},
			corev1.PersistentVolumeSource{AWSElasticBlockStore: aws},
			corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-1", FSType: "xfs", VolumeAttributes: attributes{"partition": "2"}},
			nil,
		},
		"azureDisk": {
			corev1.VolumeSource{AzureDisk: disk},
			corev1.PersistentVolumeSource{AzureDisk: disk},
			corev1.CSIPersistentVolumeSource{Driver: "disk.csi.azure.com", VolumeHandle: "/subscriptions/s/disks/d", FSType: "xfs", VolumeAttributes: attributes{"kind": "Managed", "cachingmode": "ReadOnly", "fstype": "xfs"}},
			nil,
		},
		"azureFile": {
			corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share"}},
			corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share", SecretNamespace: ptr("n")}},
			corev1.CSIPersistentVolumeSource{Driver: "file.csi.azure.com", VolumeHandle: "#acc#share#name#default", VolumeAttributes: attributes{"sharename": "share"}, NodeStageSecretRef: secret("default")},
			func(s *corev1.CSIPersistentVolumeSource) {
				s.VolumeHandle, s.NodeStageSecretRef = "group#acc#share#name#n", secret("n")
			},
		},
		"cinder": {
			corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{VolumeID: "c-1", FSType: "xfs"}},
			corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "c-1", FSType: "xfs"}},
			corev1.CSIPersistentVolumeSource{Driver: "cinder.csi.openstack.org", VolumeHandle: "c-1", FSType: "xfs"},
			nil,
		},
		"gce": {
			corev1.VolumeSource{GCEPersistentDisk: gce},
			corev1.PersistentVolumeSource{GCEPersistentDisk: gce},
			corev1.CSIPersistentVolumeSource{Driver: "pd.csi.storage.gke.io", VolumeHandle: "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd-1", FSType: "xfs", VolumeAttributes: attributes{"partition": "3"}},
			nil,
		},
		"portworx": {
			corev1.VolumeSource{PortworxVolume: portworx},
			corev1.PersistentVolumeSource{PortworxVolume: portworx},
			corev1.CSIPersistentVolumeSource{Driver: "pxd.portworx.com", VolumeHandle: "px-1", FSType: "xfs"},
			func(s *corev1.CSIPersistentVolumeSource) {
				s.ControllerPublishSecretRef, s.ControllerExpandSecretRef = px, px
				s.NodeStageSecretRef, s.NodePublishSecretRef, s.NodeExpandSecretRef = px, px, px
			},
		},
		"vsphere": {
			corev1.VolumeSource{VsphereVolume: vsphere},
			corev1.PersistentVolumeSource{VsphereVolume: vsphere},
			corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com", VolumeHandle: "[ds] v.vmdk", FSType: "xfs", VolumeAttributes: attributes{"storagepolicyname": "gold"}},
			nil,
		},
	} {
		want := tc.want
		if want.VolumeAttributes == nil {
			want.VolumeAttributes = attributes{}
		}
		inline, err := translate.Inline(&corev1.Volume{Name: "name", VolumeSource: tc.pod}, "default")
		if err != nil {
			t.Errorf("%s, inline: %v", name, err)
			continue
		}
		if diff := cmp.Diff(&want, inline.Spec.CSI); diff != "" {
			t.Errorf("%s, inline:\n%s", name, diff)
		}
		if *inline.Spec.VolumeMode != corev1.PersistentVolumeFilesystem || (inline.Spec.AccessModes[0] == corev1.ReadWriteMany) != (name == "azureFile") {
			t.Errorf("%s, inline: mode %s, access %s", name, *inline.Spec.VolumeMode, inline.Spec.AccessModes)
		}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "name", Annotations: attributes{
			"kubernetes.io/azure-file-resource-group": "group", "openstorage.io/auth-secret-name": "auth", "openstorage.io/auth-secret-namespace": "px",
		}}}
		pv.Spec.PersistentVolumeSource = tc.volume
		got, err := translate.Volume(pv)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tc.wantOfVolume != nil {
			tc.wantOfVolume(&want)
		}
		if diff := cmp.Diff(&want, got.Spec.CSI); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// A volume's location becomes its driver's topology, from the node affinity or from labels,
// current or deprecated; a disk in several zones belongs to the region.
//
// Items: P01.
func TestTopologyOfEveryDriver(t *testing.T) {
	disk := corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "pd-1"}}
	for key, source := range map[string]corev1.PersistentVolumeSource{
		"topology.ebs.csi.aws.com/zone":          {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
		"topology.cinder.csi.openstack.org/zone": {Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "c-1"}},
		"topology.gke.io/zone":                   disk,
		"topology.csi.vmware.com/zone":           {VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] v.vmdk"}},
	} {
		for _, label := range []string{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone} {
			byLabel := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: attributes{label: "eu-1a"}}}
			byLabel.Spec.PersistentVolumeSource = source
			byAffinity := byLabel.DeepCopy()
			byAffinity.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpIn, Values: []string{"eu-1a"}}},
			}}}}
			for _, pv := range []*corev1.PersistentVolume{byLabel, byAffinity} {
				if strings.Contains(key, "vmware") && pv == byLabel {
					continue // labels mean nothing for vSphere
				}
				got, err := translate.Volume(pv)
				if err != nil || got.Spec.NodeAffinity == nil {
					t.Errorf("%s of %s: %v, %v", key, label, got, err)
					continue
				}
				q := got.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions
				if len(q) != 1 || q[0].Key != key || len(q[0].Values) != 1 || q[0].Values[0] != "eu-1a" {
					t.Errorf("%s of %s: got %+v", key, label, q)
				}
			}
		}
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: attributes{corev1.LabelTopologyZone: "eu-west1-a__eu-west1-b"}}}
	pv.Spec.PersistentVolumeSource = disk
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	got, err := translate.Volume(pv)
	if err != nil || got.Spec.CSI.VolumeHandle != "projects/UNSPECIFIED/regions/eu-west1/disks/pd-1" {
		t.Fatalf("a disk of two zones: %+v, %v", got, err)
	}
	if modes := got.Spec.AccessModes; len(modes) != 1 || modes[0] != corev1.ReadWriteOnce {
		t.Errorf("ReadWriteMany of a disk: %v", modes)
	}
}

// The error for a volume that cannot be translated names its field, also for the kinds of
// the library.
//
// Items: P02.
func TestRefusalsOfTheLibraryNameTheirField(t *testing.T) {
	ref := corev1.AzureSharedBlobDisk
	aws := func(id string) *corev1.AWSElasticBlockStoreVolumeSource {
		return &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id}
	}
	azure := &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "https://a/d.vhd", Kind: &ref}
	for _, tc := range []struct {
		field   string
		missing bool
		pod     corev1.VolumeSource
		volume  corev1.PersistentVolumeSource
	}{
		{"volumeID", true, corev1.VolumeSource{AWSElasticBlockStore: aws("")}, corev1.PersistentVolumeSource{AWSElasticBlockStore: aws("")}},
		{"volumeID", false, corev1.VolumeSource{AWSElasticBlockStore: aws("aws://a/x")}, corev1.PersistentVolumeSource{AWSElasticBlockStore: aws("aws://a/x")}},
		{"diskURI", true, corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}}, corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}}},
		{"kind", false, corev1.VolumeSource{AzureDisk: azure}, corev1.PersistentVolumeSource{AzureDisk: azure}},
		{"secretName", true, corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{ShareName: "s"}}, corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{ShareName: "s"}}},
		{"shareName", true, corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s"}}, corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s"}}},
		{"secretNamespace", false, corev1.VolumeSource{}, corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s", ShareName: "s"}}},
		{"volumeID", true, corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{}}, corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{}}},
		{"pdName", true, corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}, corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}},
		{"metadata.labels[topology.kubernetes.io/zone]", false, corev1.VolumeSource{}, corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "pd"}}},
		{"volumeID", true, corev1.VolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{}}, corev1.PersistentVolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{}}},
		{"volumePath", true, corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{}}, corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{}}},
	} {
		var errs []error
		if tc.pod != (corev1.VolumeSource{}) {
			_, err := translate.Inline(&corev1.Volume{Name: "v", VolumeSource: tc.pod}, "default")
			errs = append(errs, err)
		}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: attributes{corev1.LabelTopologyZone: "a-b-c__d-e-f"}}}
		pv.Spec.PersistentVolumeSource = tc.volume
		_, err := translate.Volume(pv)
		for _, err := range append(errs, err) {
			if err == nil || !strings.HasPrefix(err.Error(), tc.field+": ") || errors.Is(err, translate.ErrField) != tc.missing {
				t.Errorf("%s: got %v", tc.field, err)
			}
		}
	}
}
