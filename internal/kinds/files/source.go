package files

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Source returns the current objects. A nil object without an error means that it does
// not exist. An error means that the answer is not known; then published content stays.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// TrustBundles returns all bundles.
	TrustBundles(ctx context.Context) ([]*certificatesv1.ClusterTrustBundle, error)
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Allocatable is what the node offers to pods.
	Allocatable() corev1.ResourceList
}

// reader returns a reader of one pod's objects for one call. The reader sets renewAt to
// the time when the first of the tokens and certificates that it read must be renewed.
func (d *Driver) reader(ctx context.Context, pod state.Pod, renewAt *time.Time) content.Reader {
	r := content.Reader{
		Namespace: pod.Namespace, Objects: objects{ctx, d.c.Source, pod},
		Allocatable: d.c.Source.Allocatable(),
	}
	until := func(at time.Time) {
		if renewAt.IsZero() || at.Before(*renewAt) {
			*renewAt = at
		}
	}
	if d.c.Certificate != nil {
		r.Certificate = func(src corev1.PodCertificateProjection) (key, chain []byte, err error) {
			c, err := d.c.Certificate(ctx, pod, src)
			if err != nil {
				return nil, nil, err
			}
			until(c.RenewAt)
			return c.Key, c.Chain, nil
		}
	}
	if d.c.Token == nil {
		return r
	}
	r.Token = func(audience string, lifetime time.Duration) ([]byte, error) {
		value, at, err := d.c.Token(ctx, pod, audience, lifetime)
		if err != nil {
			return nil, err
		}
		until(at)
		return []byte(value), nil
	}
	return r
}

type objects struct {
	ctx    context.Context // of the single call that uses it
	source Source
	pod    state.Pod
}

func (o objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return o.source.ConfigMap(o.ctx, namespace, name)
}

func (o objects) Secret(namespace, name string) (*corev1.Secret, error) {
	return o.source.Secret(o.ctx, namespace, name)
}

func (o objects) TrustBundles() ([]*certificatesv1.ClusterTrustBundle, error) {
	return o.source.TrustBundles(o.ctx)
}

func (o objects) Pod() (*corev1.Pod, error) {
	pod, err := o.source.Pod(o.ctx, o.pod.Namespace, o.pod.Name)
	if err == nil && pod != nil && state.PodUID(pod.UID) != o.pod.UID {
		return nil, fmt.Errorf("pod %s/%s has been replaced (its uid is %s, want %s)", o.pod.Namespace, o.pod.Name, pod.UID,
			o.pod.UID)
	}
	return pod, err
}
