package content

import (
	"errors"
	"fmt"
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
	files, err := r.configMap(src)
	return checked(files, err)
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
	if err != nil {
		return nil, fmt.Errorf("get configMap %s/%s: %w", r.Namespace, src.Name, err)
	}
	if found == nil && !s.optional {
		return nil, missing("configMap", r.Namespace, src.Name)
	}
	var o object
	if found != nil {
		o = object{text: found.Data, binary: found.BinaryData}
	}
	files, err := s.pick(o)
	if err != nil {
		return nil, fmt.Errorf("configMap %s/%s: %w", r.Namespace, src.Name, err)
	}
	return files, nil
}

// Secret returns the files of a secret volume.
func (r Reader) Secret(src corev1.SecretVolumeSource) (Files, error) {
	files, err := r.secret(src)
	return checked(files, err)
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
	if err != nil {
		return nil, fmt.Errorf("get secret %s/%s: %w", r.Namespace, src.SecretName, err)
	}
	if found == nil && !s.optional {
		return nil, missing("secret", r.Namespace, src.SecretName)
	}
	var o object
	if found != nil {
		o.binary = found.Data
	}
	files, err := s.pick(o)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", r.Namespace, src.SecretName, err)
	}
	return files, nil
}

func missing(kind, namespace, name string) error {
	return fmt.Errorf("%s %s/%s: %w; want it, or optional: true", kind, namespace, name, ErrNotFound)
}

func checked(files Files, err error) (Files, error) {
	if err != nil {
		return nil, err
	}
	return files.check()
}
