package content_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

// Items: L13.
func TestNestedMounts(t *testing.T) {
	mounts := func(pairs ...string) []corev1.VolumeMount {
		var all []corev1.VolumeMount
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, corev1.VolumeMount{Name: pairs[i], MountPath: pairs[i+1]})
		}
		return all
	}
	pod := &corev1.Pod{}
	pod.Spec.Containers = []corev1.Container{
		{VolumeMounts: mounts("v", "/etc/app", "a", "/etc/app/a", "b", "/etc/app/d//b/", "c", "/etc/application", "d", "/", "e", "/etc/app/..x")},
		{VolumeMounts: mounts("v", "rel/", "a", "rel/deep/er", "w", "/elsewhere/x")},
	}
	pod.Spec.InitContainers = []corev1.Container{{VolumeMounts: mounts("x", "/v/init", "v", "/v")}}
	part := mounts("v", "/part", "a", "/part/x")
	part[0].SubPath = "sub"
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{VolumeMounts: part}}}
	if got, want := content.NestedMounts(pod, "v"), []string{"a", "d/b", "deep/er", "init"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want := []string{"etc/app", "etc/app/..x", "etc/app/a", "etc/app/d/b", "etc/application"}
	if got := content.NestedMounts(pod, "d"); !slices.Equal(got, want) { // d is mounted at the root
		t.Errorf("got %q, want %q", got, want)
	}
}
