package content

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// NestedMounts returns the sorted paths, relative to the volume, at which the pod's containers
// mount other volumes inside this one. The driver of a volume that containers cannot write to
// creates directories there, because a container runtime could not.
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
