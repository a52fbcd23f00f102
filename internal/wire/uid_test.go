package wire

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
)

// withUID returns scratchPod with another name and a uid of its author's choice.
func withUID(name, uid string) string {
	return strings.Replace(scratchPod, "{name: web}", "{name: "+name+", uid: "+uid+"}", 1)
}

// An earlier version took two applied pods of one uid and stopped both. The one that is mounted by the records goes on,
// whatever their names are; the other is a problem until the first is gone. A program that ends a pod may give its uid
// to the next one at once.
func TestTheMountedPodOfAnEarlierVersionKeepsItsUID(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	apply(t, n, withUID("web", "u-1"))
	if err := n.Manager().WaitForAttachAndMount(within(t), "u-1"); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(n.Manager().GetMountedVolumesForPod("u-1")["scratch"].HostPath, "page")
	if err := os.WriteFile(page, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := n.Apply(t.Context(), server.Manifest{Name: "-", Data: []byte(withUID("aaa", "u-1"))})
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "found u-1, which pod default/web has") {
		t.Errorf("apply: %v", err)
	}
	_, err = n.Apply(t.Context(), server.Manifest{Name: "-", Data: []byte(withUID("a", "u-2") + "---" + withUID("b", "u-2"))})
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "found u-2, which pod default/a has") {
		t.Errorf("apply of two: %v", err)
	}
	stop()
	b, err := journal.OpenBolt(filepath.Join(c.StateDir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Decode("-", []byte(withUID("aaa", "u-1")))
	if err != nil {
		t.Fatal(err)
	}
	other, err := manifest.Encode(objects[0])
	if err := errors.Join(err, b.CommitBucket(t.Context(), "objects", map[string][]byte{"Pod/default/aaa": other}), b.Close()); err != nil {
		t.Fatal(err)
	}

	n, _ = start(t, c)
	if err := n.Manager().WaitForAttachAndMount(within(t), "u-1"); err != nil {
		t.Fatal(err)
	}
	if p, _ := n.Manager().Pod("u-1"); p.Pod.Name != "web" || !p.Ready {
		t.Errorf("%+v", p)
	}
	if _, err := os.Stat(page); err != nil {
		t.Errorf("data is gone: %v", err)
	}
	if all := n.Views().Problems(); len(all) != 1 || !strings.Contains(all[0].Message, "found u-1, which pod default/web has") {
		t.Errorf("problems: %v", all)
	}
	if err := n.DeletePod(t.Context(), "default", "aaa"); err != nil {
		t.Fatal(err)
	}
	next := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "next", UID: "u-1"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/s"}}}},
			Volumes:    []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	if _, err := n.MountPod(within(t), next); !errors.Is(err, server.ErrConflict) {
		t.Errorf("MountPod beside it: %v", err)
	}
	if err := n.UnmountPod(within(t), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u-1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.MountPod(within(t), next); err != nil {
		t.Errorf("MountPod after it: %v", err)
	}
	if _, err := os.Stat(page); err == nil {
		t.Error("the next pod has the data of the first")
	}
}
