package resolve

import (
	"fmt"
)

// overLimit returns an error if the pod's containers use more volumes than a pod may have on this node, and the
// names of the volumes that the pod has already: it keeps them.
func (r *resolver) overLimit(uses map[string]use) (had map[string]bool, err error) {
	limit := r.config.VolumesPerPod
	if limit == 0 || len(uses) <= limit {
		return nil, nil
	}
	if r.config.Had != nil {
		had = r.config.Had(podOf(r.pod))
	}
	return had, fmt.Errorf("%s: spec.volumes: found %d that its containers use, want at most %d, the limit of this node "+
		"(--volumes-per-pod=%d, or volumes-per-pod in the configuration file)", r.name(), len(uses), limit, limit)
}
