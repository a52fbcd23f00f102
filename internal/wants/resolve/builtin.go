package resolve

import (
	"encoding/json"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// builtin returns the want of a volume of a built-in kind; config is the source in
// the kind's own type.
func (r *resolver) builtin(of state.DriverName, name string, config any) (state.VolumeWant, error) {
	b, err := json.Marshal(config)
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: encode volume %q: %w", r.name(), name, err)
	}
	pod := podOf(r.pod)
	return state.VolumeWant{
		ID:   state.PodVolumeID(of, pod.UID, name),
		Spec: state.Spec{Driver: of, Builtin: true, Name: name, Mode: state.Filesystem, Config: b},
		Mount: state.MountSpec{
			Pod:     pod,
			Target:  r.config.Layout.BuiltinTarget(of, pod.UID, name),
			FSGroup: r.fsGroup(),
		},
	}, nil
}
