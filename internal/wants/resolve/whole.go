package resolve

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Whole is how a pod's containers mount one of its volumes.
type Whole struct {
	// ReadOnly is set if each of their mounts is read-only.
	ReadOnly bool
	// Propagation is the narrowest that one of them asks for.
	Propagation string
	// Differ is set if they do not all ask for the same.
	Differ bool
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
				w.Propagation = p
			}
			if was, again := found[m.Name]; again {
				w = was.with(w)
			}
			found[m.Name] = w
		}
	}
	return found
}

func (w Whole) with(o Whole) Whole {
	narrowest := min(slices.Index(propagations, w.Propagation), slices.Index(propagations, o.Propagation))
	return Whole{
		ReadOnly: w.ReadOnly && o.ReadOnly, Propagation: propagations[narrowest],
		Differ: w.Differ || w.ReadOnly != o.ReadOnly || w.Propagation != o.Propagation,
	}
}
