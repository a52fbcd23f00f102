//go:build cluster

package cluster

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// In a cluster its sidecars own the Controller service: whatever claims there are, and whatever
// an operator asks of the node, the node calls none of it. (The array fails its test of such a
// call, in every test.)
func TestTheClusterOwnsTheControllerService(t *testing.T) {
	t.Parallel()
	no := false
	a := newArray(t, "owned.test", &storagev1.CSIDriverSpec{AttachRequired: &no})
	a.volume("owned")
	n := asNode(t, "owner")
	a.serve(n)
	createPod(t, podWith(n.name, "owned", fromClaim("owned")))
	n.mounted("owned")
	for name, source := range map[string]*corev1.TypedLocalObjectReference{
		"unmade": nil, "uncloned": {Kind: "PersistentVolumeClaim", Name: "owned"},
	} {
		class := a.name
		_, err := control.client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, DataSource: source, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
			},
		}, metav1.CreateOptions{})
		must(t, err)
		createPod(t, podWith(n.name, name, fromClaim(name)))
	}
	for command, want := range map[string]string{
		"gc --storage":                           "in a cluster its sidecars make the volumes",
		"snapshot create pvc/owned --timeout=5s": "",
		"clone pvc/owned pvc/copy --timeout=5s":  "",
		"delete pvc owned":                       "",
	} {
		args := append([]string{"--socket", filepath.Join(n.dir, "run", "api.sock")}, strings.Fields(command)...)
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("csi-volmgr %s: %v, want an error with %q: %s", command, err, want, out)
		}
		t.Logf("%s: %s", command, out)
	}
	for _, name := range []string{"unmade", "uncloned"} {
		deletePod(t, name)
	}
	n.gone("owned")
}
