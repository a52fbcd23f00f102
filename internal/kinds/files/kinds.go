package files

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The kinds, by plugin name.
const (
	ConfigMap   = kind.ConfigMap
	Secret      = kind.Secret
	DownwardAPI = kind.DownwardAPI
	Projected   = kind.Projected
)

// Kinds are all kinds of this package.
var Kinds = [...]state.DriverName{ConfigMap, Secret, DownwardAPI, Projected}

// ErrConfig means that a record has an invalid source for its kind.
var ErrConfig = errors.New("invalid source for this kind")

// collect returns the files that the source in a volume's record selects.
func collect(kind state.DriverName, spec state.Spec, r content.Reader) (content.Files, error) {
	switch kind {
	case ConfigMap:
		return readSource(spec, "configMap", r.ConfigMap)
	case Secret:
		return readSource(spec, "secret", r.Secret)
	case DownwardAPI:
		return readSource(spec, "downwardAPI", r.DownwardAPI)
	case Projected:
		return readSource(spec, "projected", r.Projected)
	}
	return nil, fmt.Errorf("kind %q: %w", kind, ErrConfig)
}

// readSource decodes a source of type S and passes it to read; field is the source's field
// in a pod.
func readSource[S corev1.ConfigMapVolumeSource | corev1.SecretVolumeSource |
	corev1.DownwardAPIVolumeSource | corev1.ProjectedVolumeSource](
	spec state.Spec, field string, read func(S) (content.Files, error),
) (content.Files, error) {
	var src S
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", field, ErrConfig, err)
	}
	files, err := read(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return files, nil
}
