//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// partly makes the pod's container use a directory of the volume.
func partly(p *corev1.Pod) *corev1.Pod {
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "part"
	return p
}

// raw makes the pod's container use the volume as a device.
func raw(p *corev1.Pod) *corev1.Pod {
	c := &p.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: p.Spec.Volumes[0].Name, DevicePath: "/dev/data"}}
	return p
}

// given asks for the path of the volume in the pod's container, as a container runtime
// does.
func (n *node) given(pod string) string {
	n.t.Helper()
	all, err := n.api.ContainerMounts(n.t.Context(), api.Container{Namespace: "default", Pod: pod, Name: "c"})
	must(n.t, err)
	if len(all) != 1 {
		n.t.Fatalf("pod %s has %v", pod, all)
	}
	return all[0].HostPath
}

// While the daemon is down, pods that use directories of volumes and devices are deleted,
// by force or not; the claim of another pod was deleted before. When the daemon is back,
// that pod has its volume untouched. The volumes of pods deleted by force are unmounted at
// once, the others when their containers have ended.
func TestScenariosOfAnAgentThatIsAway(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-away")
	s := begin(t, n, attached("scene-away.test", "csi-provisioner"))
	s.n = n
	block := corev1.PersistentVolumeBlock
	core := control.client.CoreV1()
	for pod, change := range map[string]func(*corev1.Pod) *corev1.Pod{
		"away-stays": nil, "away-leaves": partly, "away-forced": partly, "away-raw": raw, "away-raw-forced": raw,
	} {
		s.wish(pod, func(c *corev1.PersistentVolumeClaim) {
			if pod == "away-raw" || pod == "away-raw-forced" {
				c.Spec.VolumeMode = &block
			}
		})
		p := podWith(n.name, pod, fromClaim(pod))
		if change != nil {
			p = change(p)
		}
		createPod(t, p)
	}
	for _, pod := range []string{"away-stays", "away-leaves", "away-forced", "away-raw", "away-raw-forced"} {
		n.mounted(pod)
		n.given(pod)
	}
	file := filepath.Join(n.at("away-stays", "data"), "f")
	must(t, os.WriteFile(file, []byte("kept"), 0o600))
	must(t, core.PersistentVolumeClaims("default").Delete(t.Context(), "away-stays", metav1.DeleteOptions{}))
	n.stop()
	grace := int64(30)
	for _, pod := range []string{"away-leaves", "away-raw"} {
		must(t, core.Pods("default").Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	}
	for _, pod := range []string{"away-forced", "away-raw-forced"} {
		deletePod(t, pod)
	}
	calls := s.count("NodeStageVolume", csistrict.EventBegin) + s.count("NodePublishVolume", csistrict.EventBegin)
	n.start()
	// Scenarios: U-158, U-183.
	for _, pod := range []string{"away-forced", "away-raw-forced"} {
		n.eventually(pod+" is unstaged", func() bool { v := s.volume(pod); return v.Stage.Phase == csistrict.Absent && len(v.Targets) == 0 })
	}
	// Scenarios: U-35, U-180.
	n.mounted("away-stays")
	n.hasFile(file, "kept")
	for _, pod := range []string{"away-stays", "away-leaves", "away-raw"} {
		if v := s.volume(pod); v.Stage.Phase != csistrict.Present || len(v.Targets) != 1 {
			t.Errorf("%s: the volume is %+v", pod, v)
		}
	}
	if now := s.count("NodeStageVolume", csistrict.EventBegin) + s.count("NodePublishVolume", csistrict.EventBegin); now != calls {
		t.Errorf("%d calls for what was there", now-calls)
	}
	// Scenarios: U-157, U-182.
	for _, pod := range []string{"away-leaves", "away-raw"} { // their containers have ended
		deletePod(t, pod)
	}
	s.down("away-stays")
	n.eventually("nothing is mounted", func() bool { return len(n.mounts()) == 0 })
	n.eventually("the claim is gone, and its volume", func() bool {
		_, err := core.PersistentVolumeClaims("default").Get(t.Context(), "away-stays", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && len(s.model().Volumes) == 4
	})
	for _, claim := range []string{"away-leaves", "away-forced", "away-raw", "away-raw-forced"} {
		s.unclaim(n, claim)
	}
}
