package content

import (
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// ErrNotFound means that an object that a volume needs does not exist.
var ErrNotFound = errors.New("not found")

// Objects looks up objects. It returns nil without an error if an object does not exist, and an
// error if that is unknown. The results are read-only.
type Objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Secret(namespace, name string) (*corev1.Secret, error)
	// TrustBundles returns all ClusterTrustBundles.
	TrustBundles() ([]*certificatesv1.ClusterTrustBundle, error)
	// Pod returns the pod that has the volume.
	Pod() (*corev1.Pod, error)
}

// Reader creates the files of one pod's volumes.
type Reader struct {
	// Namespace is the pod's namespace.
	Namespace string
	Objects   Objects
	// Allocatable is what the node offers to pods, which is the limit of a container without one.
	Allocatable corev1.ResourceList
	// Token returns a token of the pod's service account, or a placeholder; it is nil if nothing
	// issues tokens.
	Token func(audience string, lifetime time.Duration) ([]byte, error)
	// Certificate returns a private key and the certificates that a signer issued for it in PEM, or
	// placeholders; it is nil without a cluster.
	Certificate func(corev1.PodCertificateProjection) (key, chain []byte, err error)
}

// ConfigMap returns the files of a configMap volume.
func (r Reader) ConfigMap(src corev1.ConfigMapVolumeSource) (Files, error) {
	return checked(r.configMap(src))
}

func (r Reader) configMap(src corev1.ConfigMapVolumeSource) (Files, error) {
	d, err := newDefaults(src.DefaultMode, src.DefaultUser)
	if err != nil {
		return nil, err
	}
	s := newSelection(src.Items, d, src.Optional)
	if src.Name == "" {
		return nil, errors.New("name is empty")
	}
	found, err := r.Objects.ConfigMap(r.Namespace, src.Name)
	var o object
	if found != nil {
		o = object{text: found.Data, binary: found.BinaryData}
	}
	return s.files("configMap "+r.Namespace+"/"+src.Name, o, found != nil, err)
}

// Secret returns the files of a secret volume.
func (r Reader) Secret(src corev1.SecretVolumeSource) (Files, error) {
	return checked(r.secret(src))
}

func (r Reader) secret(src corev1.SecretVolumeSource) (Files, error) {
	d, err := newDefaults(src.DefaultMode, src.DefaultUser)
	if err != nil {
		return nil, err
	}
	s := newSelection(src.Items, d, src.Optional)
	if src.SecretName == "" {
		return nil, errors.New("secretName is empty")
	}
	found, err := r.Objects.Secret(r.Namespace, src.SecretName)
	var o object
	if found != nil {
		o.binary = found.Data
	}
	return s.files("secret "+r.Namespace+"/"+src.SecretName, o, found != nil, err)
}

func checked(files Files, err error) (Files, error) {
	if err != nil {
		return nil, err
	}
	return files.check()
}
