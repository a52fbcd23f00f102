package resolve

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// podFiles resolves a configMap, secret, downwardAPI or projected volume.
func (r *resolver) podFiles(v *corev1.Volume, field string) (state.VolumeWant, error) {
	read := content.Reader{Namespace: r.pod.Namespace, Objects: objects{r}, Allocatable: r.allocatable()}
	if r.config.Tokens {
		read.Token = tokenAsked
	}
	if r.config.Certificates {
		read.Certificate = certificateAsked
	}
	var found content.Files
	var source any
	var key []byte
	var err error
	of := kind.ConfigMap
	switch {
	case v.ConfigMap != nil:
		source = v.ConfigMap
		found, err = read.ConfigMap(*v.ConfigMap)
	case v.Secret != nil:
		of, source, key = kind.Secret, v.Secret, r.config.RevisionKey
		found, err = read.Secret(*v.Secret)
	case v.DownwardAPI != nil:
		of, source = kind.DownwardAPI, v.DownwardAPI
		found, err = read.DownwardAPI(*v.DownwardAPI)
	default:
		if of, source = kind.Projected, v.Projected; content.HasSecret(*v.Projected) {
			key = r.config.RevisionKey
		}
		found, err = read.Projected(*v.Projected)
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", r.name(), field, err)
		if errors.Is(err, content.ErrNoIssuer) {
			err = because(state.CauseCode(state.NoIssuer), "", err)
		}
		return state.VolumeWant{}, err
	}
	w, err := r.builtin(of, v.Name, source)
	w.Revision = found.Revision(key)
	return w, err
}

// objects looks up the objects whose data the pod's volumes show ([content.Objects]).
type objects struct{ r *resolver }

func (o objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	key := Key{KindConfigMap, namespace, name}
	if object, ok := o.r.objects.Get(key).(*corev1.ConfigMap); ok {
		return object, nil
	}
	return nil, o.unread(key)
}

func (o objects) Secret(namespace, name string) (*corev1.Secret, error) {
	key := Key{KindSecret, namespace, name}
	if object, ok := o.r.objects.Get(key).(*corev1.Secret); ok {
		return object, nil
	}
	return nil, o.unread(key)
}

// unread returns an error if the object could not be read, so that it may exist.
func (o objects) unread(key Key) error {
	if why := o.r.objects.Unread(key); why != "" {
		return unreadError{why}
	}
	return nil
}

func (o objects) Pod() (*corev1.Pod, error) { return o.r.pod, nil }

// tokenAsked returns the request in place of the token, so that a volume's revision
// changes with the request and not each time a token is renewed.
func tokenAsked(audience string, lifetime time.Duration) ([]byte, error) {
	return fmt.Appendf(nil, "%q for %v", audience, lifetime), nil
}

// certificateAsked returns the request in place of the certificate, as tokenAsked does.
func certificateAsked(src corev1.PodCertificateProjection) (key, chain []byte, err error) {
	asked, err := json.Marshal(src)
	return asked, asked, err
}
