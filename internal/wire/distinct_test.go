package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// A node with 150 pods, each with its own secret and configMap, restarts. No volume of any pod fails, not even once
// (kk#140037: a kubelet fails each with "object not registered"), and an object that changed meanwhile reaches its
// pod.
func TestPodsWithDistinctObjectsOutliveARestart(t *testing.T) {
	const pods = 150
	s := fakeapi.New()
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	object := func(i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("o", i), UID: types.UID(fmt.Sprint("o", i))}
	}
	volume := func(name string, source corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: source}
	}
	for i := range pods {
		meta := object(i)
		s.Put(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"f": []byte("secret " + meta.Name)}},
			&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"f": "config " + meta.Name}},
			&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
				NodeName: "n1",
				Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{
					{Name: "secret", MountPath: "/s"}, {Name: "config", MountPath: "/c"},
				}}},
				Volumes: []corev1.Volume{
					volume("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: meta.Name}}),
					volume("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name}}}),
				},
			}})
	}
	c := dirs(t)
	c.Cluster = inMemory(s)
	// served waits until the volumes of every pod have the wanted content. Until then no call fails, and volumes only
	// wait for objects that were not read from the API server yet.
	served := func(n *Node, want func(kind string, i int) string) {
		t.Helper()
		for {
			changed, behind := n.manager.Changed(), ""
			found := n.manager.Pods()
			for _, p := range found {
				for _, v := range p.Volumes {
					unresolved := v.Code == "" && v.BlockedBy != "" && !strings.HasSuffix(v.BlockedBy, ": not read from the API server yet")
					if unresolved || v.Retry.Attempts > 0 {
						t.Errorf("pod %s, volume %s: %s", p.Pod.Name, v.Names[0], v.BlockedBy)
					}
					var i int
					fmt.Sscanf(p.Pod.Name, "o%d", &i)
					text, err := os.ReadFile(filepath.Join(v.HostPath, "f"))
					if !p.Ready || err != nil || string(text) != want(v.Names[0], i) {
						behind = fmt.Sprintf("%s has %s, want %s: %+v", p.Pod.Name, text, want(v.Names[0], i), v)
					}
				}
			}
			if behind == "" && len(found) == pods {
				return
			}
			select {
			case <-changed:
			case <-t.Context().Done():
				t.Fatalf("%d pods; %s", len(found), behind)
			}
		}
	}
	first := func(kind string, i int) string { return kind + " " + object(i).Name }
	n, stop := start(t, c)
	served(n, first)
	stop()
	s.Put(&corev1.ConfigMap{ObjectMeta: object(7), Data: map[string]string{"f": "config changed"}})
	n, _ = start(t, c)
	served(n, func(kind string, i int) string {
		if kind == "config" && i == 7 {
			return "config changed"
		}
		return first(kind, i)
	})
}
