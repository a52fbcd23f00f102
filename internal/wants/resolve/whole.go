package resolve

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Whole is how a pod's containers mount one of its volumes.
type Whole struct {
	// ReadOnly is set if each of their mounts is read-only.
	ReadOnly bool
	// Propagation is the narrowest that one of them asks for.
	Propagation string
	// Differ is set if they do not all ask for the same.
	Differ bool
	// Bidirectional is set if one of them asks for that.
	Bidirectional bool
}

// propagations are the values of [ContainerMount.Propagation] from the narrowest to the widest.
var propagations = []string{"rprivate", "rslave", "rshared"}

// Wholes returns how the init, regular and ephemeral containers of the pod mount each of its volumes, by
// the pod's names for them. A propagation that a container may not have counts as none.
func Wholes(pod *corev1.Pod) map[string]Whole {
	found := map[string]Whole{}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for _, e := range pod.Spec.EphemeralContainers {
		containers = append(containers, corev1.Container(e.EphemeralContainerCommon))
	}
	for i := range containers {
		u := unit{container: &containers[i]}
		for _, m := range u.container.VolumeMounts {
			w := Whole{ReadOnly: m.ReadOnly || IsFixed(volumeKind(pod, m.Name)), Propagation: propagations[0]}
			if p, err := u.propagation(m); err == nil {
				w.Propagation, w.Bidirectional = p, p == "rshared"
			}
			if was, again := found[m.Name]; again {
				w = was.with(w)
			}
			found[m.Name] = w
		}
	}
	return found
}

// askForPeers notes which volumes a container shares its own mounts with: the kind binds them so that these
// reach the volume's other pods.
func askForPeers(pod *corev1.Pod, volumes []state.VolumeWant) {
	var uses map[string]Whole
	for i := range volumes {
		v := &volumes[i]
		switch v.Spec.Driver {
		case kind.Embedded, kind.FC, kind.ISCSI, kind.Local:
		default:
			continue
		}
		if uses == nil {
			uses = Wholes(pod)
		}
		both := func(name string) bool { return uses[name].Bidirectional }
		if v.Unresolved() || v.Spec.Ephemeral || v.Spec.Mode == state.Block || !slices.ContainsFunc(v.Names, both) {
			continue
		}
		context := maps.Clone(v.Mount.Context)
		if context == nil {
			context = map[string]string{}
		}
		context[kind.PropagationKey] = kind.Bidirectional
		v.Mount.Context = context
	}
}

func (w Whole) with(o Whole) Whole {
	narrowest := min(slices.Index(propagations, w.Propagation), slices.Index(propagations, o.Propagation))
	return Whole{
		ReadOnly: w.ReadOnly && o.ReadOnly, Propagation: propagations[narrowest],
		Differ:        w.Differ || w.ReadOnly != o.ReadOnly || w.Propagation != o.Propagation,
		Bidirectional: w.Bidirectional || o.Bidirectional,
	}
}
