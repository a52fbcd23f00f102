package translate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

func rbd(change func(*corev1.RBDPersistentVolumeSource)) *corev1.PersistentVolume {
	src := &corev1.RBDPersistentVolumeSource{
		CephMonitors: []string{"a:6789", "b:6789"}, RBDImage: "disk", FSType: "xfs",
		SecretRef: &corev1.SecretReference{Name: "s", Namespace: "n"},
	}
	if change != nil {
		change(src)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.RBD = src
	return pv
}

func cephFS(change func(*corev1.CephFSPersistentVolumeSource)) *corev1.PersistentVolume {
	src := &corev1.CephFSPersistentVolumeSource{Monitors: []string{"a:6789", "b:6789"}, SecretRef: &corev1.SecretReference{Name: "s", Namespace: "n"}}
	if change != nil {
		change(src)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CephFS = src
	return pv
}

func TestWhatCephCSIIsTold(t *testing.T) {
	secret := &corev1.SecretReference{Name: "s", Namespace: "n"}
	for name, tc := range map[string]struct {
		pv   *corev1.PersistentVolume
		want corev1.CSIPersistentVolumeSource
	}{
		"an image made by an operator": {rbd(nil), corev1.CSIPersistentVolumeSource{
			Driver: "rbd.csi.ceph.com", VolumeHandle: "disk", FSType: "xfs", NodeStageSecretRef: secret, ControllerExpandSecretRef: secret,
			VolumeAttributes: map[string]string{"clusterID": mons, "pool": "rbd", "staticVolume": "true", "imageFeatures": "layering"},
		}},
		"an image that Kubernetes made": {rbd(func(s *corev1.RBDPersistentVolumeSource) { s.RBDImage, s.RBDPool = "kubernetes-dynamic-pvc-u-1", "p" }), corev1.CSIPersistentVolumeSource{
			Driver: "rbd.csi.ceph.com", VolumeHandle: "mig_mons-" + mons + "_image-u-1_70", FSType: "xfs", NodeStageSecretRef: secret, ControllerExpandSecretRef: secret,
			VolumeAttributes: map[string]string{
				"clusterID": mons, "pool": "p", "staticVolume": "true", "imageFeatures": "layering",
				"imageName": "kubernetes-dynamic-pvc-u-1", "migration": "true", "tryOtherMounters": "true",
			},
		}},
		"a directory of a file system": {cephFS(func(s *corev1.CephFSPersistentVolumeSource) { s.Path = "/a" }), corev1.CSIPersistentVolumeSource{
			Driver: "cephfs.csi.ceph.com", VolumeHandle: "intree-" + mons + "-2f61", NodeStageSecretRef: secret,
			VolumeAttributes: map[string]string{"clusterID": mons, "rootPath": "/a", "staticVolume": "true"},
		}},
	} {
		got, err := translate.Volume(tc.pv)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(&tc.want, got.Spec.CSI); diff != "" || got.Spec.RBD != nil || got.Spec.CephFS != nil || got.Name != "pv" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if tc.pv.Spec.CSI != nil {
			t.Errorf("%s: the volume itself was changed", name)
		}
	}
}

func TestWhatCannotBeTranslatedNamesItsField(t *testing.T) {
	for field, pv := range map[string]*corev1.PersistentVolume{
		"monitors: ":  rbd(func(s *corev1.RBDPersistentVolumeSource) { s.CephMonitors = nil }),
		"image: ":     rbd(func(s *corev1.RBDPersistentVolumeSource) { s.RBDImage = "a/b" }),
		"keyring: ":   rbd(func(s *corev1.RBDPersistentVolumeSource) { s.Keyring = "/root/keyring" }),
		"secretRef: ": rbd(func(s *corev1.RBDPersistentVolumeSource) { s.SecretRef = nil }),
		"secretRef:":  rbd(func(s *corev1.RBDPersistentVolumeSource) { s.SecretRef.Namespace = "" }),
		"monitors:":   cephFS(func(s *corev1.CephFSPersistentVolumeSource) { s.Monitors = []string{""} }),
		"path: ":      cephFS(func(s *corev1.CephFSPersistentVolumeSource) { s.Path = "/a/../b" }),
		"secretFile:": cephFS(func(s *corev1.CephFSPersistentVolumeSource) { s.SecretFile = "/etc/other" }),
		"secretRef":   cephFS(func(s *corev1.CephFSPersistentVolumeSource) { s.SecretRef = nil }),
	} {
		if _, err := translate.Volume(pv); !errors.Is(err, translate.ErrField) || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s got %v", field, err)
		}
	}
}

// Items: P02.
func TestAzureDiskThatIsNotManaged(t *testing.T) {
	kind := corev1.AzureSharedBlobDisk
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.AzureDisk = &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "https://a.blob.core.windows.net/d.vhd", Kind: &kind}
	if got, err := translate.Volume(pv); err == nil {
		t.Errorf("got %+v", got.Spec.CSI)
	}
}

// Items: P01.
func TestTopologyIsTheDrivers(t *testing.T) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: map[string]string{
		corev1.LabelTopologyZone: "eu-1a", corev1.LabelTopologyRegion: "eu-1",
	}}}
	pv.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-1a/vol-1", Partition: 2}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"eu-1a"}}},
	}}}}
	got, err := translate.Volume(pv)
	if err != nil {
		t.Fatal(err)
	}
	if key := got.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key; key != "topology.ebs.csi.aws.com/zone" || got.Spec.CSI.VolumeAttributes["partition"] != "2" {
		t.Errorf("key %s, attributes %v", key, got.Spec.CSI.VolumeAttributes)
	}
}

// Items: P01, P03.
func TestClassesAndTheAnnotationOfNodes(t *testing.T) {
	want := map[string]string{
		"kubernetes.io/aws-ebs": "ebs.csi.aws.com", "kubernetes.io/azure-disk": "disk.csi.azure.com", "kubernetes.io/azure-file": "file.csi.azure.com",
		"kubernetes.io/cinder": "cinder.csi.openstack.org", "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
		"kubernetes.io/portworx-volume": "pxd.portworx.com", "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
	}
	plugins := strings.Split(translate.MigratedPlugins(translate.Kinds()), ",")
	if len(plugins) != len(want) {
		t.Errorf("plugins: %q", plugins)
	}
	for _, p := range plugins {
		in := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: p, Parameters: map[string]string{"fstype": "xfs"}}
		out, err := translate.Class(in, translate.Kinds())
		if err != nil || out.Provisioner != want[p] || in.Provisioner != p {
			t.Errorf("%s: got %+v, %v", p, out, err)
		}
	}
	in := &storagev1.StorageClass{Provisioner: "kubernetes.io/aws-ebs", Parameters: map[string]string{"fstype": "xfs", "type": "gp3", "zone": "eu-1a"}}
	out, err := translate.Class(in, translate.Kinds())
	if err != nil || out.Parameters["csi.storage.k8s.io/fstype"] != "xfs" || len(out.AllowedTopologies) != 1 {
		t.Errorf("got %+v, %v", out, err)
	}
	other := &storagev1.StorageClass{Provisioner: "local.csi-volmgr.dev"}
	if out, err := translate.Class(other, translate.Kinds()); err != nil || out != other {
		t.Errorf("a class of a CSI driver: %v, %v", out, err)
	}
	// Only the kinds asked for are translated and listed.
	some := []string{"cinder", "awsElasticBlockStore", "rbd"}
	if got := translate.MigratedPlugins(some); got != "kubernetes.io/aws-ebs,kubernetes.io/cinder" {
		t.Errorf("of %q: %q", some, got)
	}
	azure := &storagev1.StorageClass{Provisioner: "kubernetes.io/azure-disk"}
	if out, err := translate.Class(azure, some); err != nil || out != azure {
		t.Errorf("a class of another kind: %v, %v", out, err)
	}
}
