package content

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// NestedMounts lists, sorted, where in a volume of the pod other volumes are
// mounted: the paths, relative to the volume, of mounts that containers have
// below one of this volume. A driver that makes a volume that containers may not
// write to makes directories of them, since a container runtime cannot.
func NestedMounts(pod *corev1.Pod, volume string) []string {
	var nested []string
	each := func(mounts []corev1.VolumeMount) {
		for _, m := range mounts {
			if m.Name != volume || m.SubPath != "" || m.SubPathExpr != "" {
				continue
			}
			for _, other := range mounts {
				below, ok := strings.CutPrefix(path.Join("/", other.MountPath), strings.TrimSuffix(path.Join("/", m.MountPath),
					"/")+"/")
				if ok && below != "" && !strings.HasPrefix(below, "..") {
					nested = append(nested, below)
				}
			}
		}
	}
	for _, c := range pod.Spec.InitContainers {
		each(c.VolumeMounts)
	}
	for _, c := range pod.Spec.Containers {
		each(c.VolumeMounts)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		each(c.VolumeMounts)
	}
	slices.Sort(nested)
	return slices.Compact(nested)
}
