package resolve

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// builtin returns the want of a kind that is served in this process; config is
// its source as that kind defines it.
func (r *resolver) builtin(kind state.DriverName, name string, config any) (state.VolumeWant, error) {
	b, err := json.Marshal(config)
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: encode volume %q: %w", r.name(), name, err)
	}
	pod := podOf(r.pod)
	return state.VolumeWant{
		ID:   state.PodVolumeID(kind, pod.UID, name),
		Spec: state.Spec{Driver: kind, Builtin: true, Name: name, Mode: state.Filesystem, Config: b},
		Mount: state.MountSpec{
			Pod:     pod,
			Target:  r.config.Layout.BuiltinTarget(kind, pod.UID, name),
			FSGroup: r.fsGroup(),
		},
	}, nil
}

func (r *resolver) emptyDir(v *corev1.Volume, field string) (state.VolumeWant, error) {
	src := v.EmptyDir
	if src == nil {
		src = &corev1.EmptyDirVolumeSource{}
	}
	if !knownMedium(src.Medium) {
		return state.VolumeWant{}, r.fault(Fault{field + ".medium", string(src.Medium), `"", Memory, HugePages or HugePages-<size>`})
	}
	if src.SizeLimit != nil && src.SizeLimit.Sign() < 0 {
		return state.VolumeWant{}, r.fault(Fault{field + ".sizeLimit", src.SizeLimit.String(), "zero or more"})
	}
	return r.builtin(EmptyDir, v.Name, src)
}

func knownMedium(m corev1.StorageMedium) bool {
	switch m {
	case corev1.StorageMediumDefault, corev1.StorageMediumMemory, corev1.StorageMediumHugePages:
		return true
	}
	size, ok := strings.CutPrefix(string(m), string(corev1.StorageMediumHugePagesPrefix))
	if !ok {
		return false
	}
	q, err := resource.ParseQuantity(size)
	return err == nil && q.Sign() > 0
}
