package content

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// ErrNeedsCluster means that only a Kubernetes cluster can provide the content.
var ErrNeedsCluster = errors.New("needs a Kubernetes cluster, and this node has none")

// Projected returns the files of all sources of a projected volume. If two sources have the same
// path, the later one is used, as the kubelet does. The error joins those of all sources.
func (r Reader) Projected(src corev1.ProjectedVolumeSource) (Files, error) {
	d, err := newDefaults(src.DefaultMode, src.DefaultUser)
	if err != nil {
		return nil, err
	}
	all := Files{}
	var errs []error
	for i, s := range src.Sources {
		kind, files, err := r.projection(s, d)
		if err != nil {
			errs = append(errs, fmt.Errorf("sources[%d]%s: %w", i, kind, err))
		}
		maps.Copy(all, files)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return all.check()
}

// projection returns the files of one source, and the name of its field for messages.
func (r Reader) projection(s corev1.VolumeProjection, d defaults) (kind string, files Files, err error) {
	set := 0
	for _, is := range []bool{
		s.ConfigMap != nil, s.Secret != nil, s.DownwardAPI != nil, s.ServiceAccountToken != nil, s.ClusterTrustBundle != nil,
		s.PodCertificate != nil,
	} {
		if is {
			set++
		}
	}
	if set != 1 {
		return "", nil, errors.New("want exactly one of configMap, secret, downwardAPI, serviceAccountToken, " +
			"clusterTrustBundle, podCertificate")
	}
	mode := int32(d.mode)
	switch {
	case s.ConfigMap != nil:
		p := s.ConfigMap
		kind = ".configMap"
		files, err = r.configMap(corev1.ConfigMapVolumeSource{
			LocalObjectReference: p.LocalObjectReference, Items: p.Items, Optional: p.Optional,
			DefaultMode: &mode, DefaultUser: d.user,
		})
	case s.Secret != nil:
		p := s.Secret
		kind = ".secret"
		files, err = r.secret(corev1.SecretVolumeSource{
			SecretName: p.Name, Items: p.Items, Optional: p.Optional,
			DefaultMode: &mode, DefaultUser: d.user,
		})
	case s.DownwardAPI != nil:
		kind = ".downwardAPI"
		files, err = r.downward(s.DownwardAPI.Items, d)
	case s.ServiceAccountToken != nil:
		kind = ".serviceAccountToken"
		files, err = r.token(*s.ServiceAccountToken, d)
	case s.ClusterTrustBundle != nil:
		kind = ".clusterTrustBundle"
		files, err = r.trust(*s.ClusterTrustBundle, d)
	default:
		kind = ".podCertificate"
		files, err = r.certificate(*s.PodCertificate, d)
	}
	return kind, files, err
}

// HasSecret reports whether any of the sources may contain secret data.
func HasSecret(src corev1.ProjectedVolumeSource) bool {
	for _, s := range src.Sources {
		if s.ConfigMap == nil && s.DownwardAPI == nil {
			return true
		}
	}
	return false
}
