package content

import (
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// ErrNotFound means that an object that a volume needs is known not to exist.
var ErrNotFound = errors.New("not found")

// Objects is where the objects are looked up. nil without an error means that
// there is none; an error that it is not known, which changes nothing. What is
// returned is read only.
type Objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Secret(namespace, name string) (*corev1.Secret, error)
	// TrustBundles returns all that there are.
	TrustBundles() ([]*certificatesv1.ClusterTrustBundle, error)
	// Pod returns the pod whose volume it is.
	Pod() (*corev1.Pod, error)
}

// Reader makes the files of the volumes of one pod.
type Reader struct {
	// Namespace is the pod's.
	Namespace string
	Objects   Objects
	// Allocatable is what the node has for pods: the limit of a container that
	// has none.
	Allocatable corev1.ResourceList
	// Token returns a token of the pod's service account, or what stands for it;
	// nil where nothing issues tokens.
	Token func(audience string, lifetime time.Duration) ([]byte, error)
	// Certificate returns a private key and the certificates that a signer issued
	// for it, in PEM, or what stands for them; nil where there is no cluster.
	Certificate func(corev1.PodCertificateProjection) (key, chain []byte, err error)
}

// ConfigMap returns the files of a volume of kind configMap.
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
	files, err := s.of(o)
	if err != nil {
		return nil, fmt.Errorf("configMap %s/%s: %w", r.Namespace, src.Name, err)
	}
	return files, nil
}

// Secret returns the files of a volume of kind secret.
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
	files, err := s.of(o)
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
