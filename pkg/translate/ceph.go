package translate

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The names of ceph-csi's drivers in its manifests.
const (
	rbdDriver    = "rbd.csi.ceph.com"
	cephFSDriver = "cephfs.csi.ceph.com"
)

// dynamicImage is the prefix of images that Kubernetes' in-tree rbd provisioner made.
const dynamicImage = "kubernetes-dynamic-pvc-"

// defaultPool is the pool of an rbd source that names none.
const defaultPool = "rbd"

// ErrField means that a field cannot be translated. An error that wraps it names the
// field within the source, the value found and the value wanted.
var ErrField = errors.New("cannot be translated")

func refuse(field, found, want string) error {
	return fmt.Errorf("%s: found %q, want %s: it %w", field, found, want, ErrField)
}

// clusterID returns the id that the cluster with these monitors must have in ceph-csi's
// configuration: the MD5 of the list, as in Kubernetes' former translation of rbd.
// csi-volmgr uses it for cephfs too.
func clusterID(monitors []string) string {
	sum := md5.Sum([]byte(strings.Join(monitors, ",")))
	return hex.EncodeToString(sum[:])
}

// rbd has the fields of an rbd source in a pod or a PersistentVolume.
type rbd struct {
	monitors            []string
	image, pool, fsType string
	keyring             string
	readOnly            bool
	secret              *corev1.SecretReference
}

// checkSecret returns an error if there is no Secret. ceph-csi needs one; Kubernetes could
// also read a file of the node (insteadOf).
func checkSecret(secret *corev1.SecretReference, insteadOf string) error {
	if secret != nil && secret.Name != "" && secret.Namespace != "" {
		return nil
	}
	found := ""
	if secret != nil {
		found = secret.Namespace + "/" + secret.Name
	}
	return refuse("secretRef", found, "the name of a Secret with userID and userKey, and in a PersistentVolume its "+
		"namespace, since ceph-csi reads no "+insteadOf+" of the node")
}

func (s rbd) source() (*corev1.CSIPersistentVolumeSource, error) {
	if len(s.monitors) == 0 || slices.Contains(s.monitors, "") {
		return nil, refuse("monitors", strings.Join(s.monitors, ","), "at least one monitor, none empty")
	}
	if s.image == "" || strings.ContainsAny(s.image, "/@") {
		return nil, refuse("image", s.image, "the name of an image")
	}
	if s.keyring != "" && s.keyring != "/etc/ceph/keyring" {
		return nil, refuse("keyring", s.keyring, "none, and secretRef")
	}
	if err := checkSecret(s.secret, "keyring"); err != nil {
		return nil, err
	}
	if s.pool == "" {
		s.pool = defaultPool
	}
	csi := &corev1.CSIPersistentVolumeSource{
		Driver: rbdDriver, FSType: s.fsType, ReadOnly: s.readOnly, VolumeHandle: s.image,
		NodeStageSecretRef: s.secret, ControllerExpandSecretRef: s.secret,
		VolumeAttributes: map[string]string{
			"clusterID": clusterID(s.monitors), "pool": s.pool, "staticVolume": "true", "imageFeatures": "layering",
		},
	}
	if id, made := strings.CutPrefix(s.image, dynamicImage); made && id != "" {
		// ceph-csi recognizes images that Kubernetes made by a handle of this form.
		csi.VolumeHandle = strings.Join([]string{
			"mig", "mons-" + clusterID(s.monitors), "image-" + id,
			hex.EncodeToString([]byte(s.pool)),
		}, "_")
		csi.VolumeAttributes["imageName"] = s.image
		csi.VolumeAttributes["migration"] = "true"
		csi.VolumeAttributes["tryOtherMounters"] = "true"
	}
	return csi, nil
}

func cephVolume(pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	csi, err := cephSource(&pv.Spec)
	if err != nil {
		return nil, err
	}
	out := pv.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
	out.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: csi}
	return out, nil
}

func cephSource(spec *corev1.PersistentVolumeSpec) (*corev1.CSIPersistentVolumeSource, error) {
	if s := spec.RBD; s != nil {
		return rbd{s.CephMonitors, s.RBDImage, s.RBDPool, s.FSType, s.Keyring, s.ReadOnly, s.SecretRef}.source()
	}
	s := spec.CephFS
	return cephFS{s.Monitors, s.Path, s.SecretFile, s.ReadOnly, s.SecretRef}.source()
}

// cephFS has the fields of a cephfs source in a pod or a PersistentVolume. It lacks the
// user, which ceph-csi reads from the Secret.
type cephFS struct {
	monitors         []string
	path, secretFile string
	readOnly         bool
	secret           *corev1.SecretReference
}

func (s cephFS) source() (*corev1.CSIPersistentVolumeSource, error) {
	if len(s.monitors) == 0 || slices.Contains(s.monitors, "") {
		return nil, refuse("monitors", strings.Join(s.monitors, ","), "at least one monitor, none empty")
	}
	root := s.path
	if root == "" {
		root = "/"
	}
	if !strings.HasPrefix(root, "/") || slices.Contains(strings.Split(root, "/"), "..") {
		return nil, refuse("path", s.path, "an absolute path without '..'")
	}
	if s.secretFile != "" && s.secretFile != "/etc/ceph/user.secret" {
		return nil, refuse("secretFile", s.secretFile, "none, and secretRef")
	}
	if err := checkSecret(s.secret, "secretFile"); err != nil {
		return nil, err
	}
	id := clusterID(s.monitors)
	return &corev1.CSIPersistentVolumeSource{
		Driver: cephFSDriver, ReadOnly: s.readOnly, NodeStageSecretRef: s.secret,
		// ceph-csi accepts any handle for a static volume, but it must be unique.
		VolumeHandle:     "intree-" + id + "-" + hex.EncodeToString([]byte(root)),
		VolumeAttributes: map[string]string{"clusterID": id, "rootPath": root, "staticVolume": "true"},
	}, nil
}

// cephInline translates a source in a pod. Its Secret is in the pod's namespace.
func cephInline(v *corev1.Volume, namespace string) (*corev1.PersistentVolume, error) {
	secret := func(ref *corev1.LocalObjectReference) *corev1.SecretReference {
		if ref == nil {
			return nil
		}
		return &corev1.SecretReference{Name: ref.Name, Namespace: namespace}
	}
	pv := &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}}
	mode := corev1.PersistentVolumeFilesystem
	pv.Spec.VolumeMode = &mode
	var err error
	var readOnly bool
	access := corev1.ReadWriteMany
	if s := v.RBD; s != nil {
		readOnly, access = s.ReadOnly, corev1.ReadWriteOnce
		pv.Spec.CSI, err = rbd{
			s.CephMonitors, s.RBDImage, s.RBDPool, s.FSType, s.Keyring, s.ReadOnly,
			secret(s.SecretRef),
		}.source()
	} else {
		s := v.CephFS
		readOnly = s.ReadOnly
		pv.Spec.CSI, err = cephFS{s.Monitors, s.Path, s.SecretFile, s.ReadOnly, secret(s.SecretRef)}.source()
	}
	if err != nil {
		return nil, err
	}
	if readOnly {
		access = corev1.ReadOnlyMany
	}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{access}
	pv.Name = pv.Spec.CSI.Driver + "-" + pv.Spec.CSI.VolumeHandle
	return pv, nil
}
