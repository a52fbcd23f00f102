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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// In a cluster the sidecars own the Controller service. The node makes none of its calls
// and does not ask for its capabilities, whatever claims and snapshots exist, however they
// change, and whatever an operator asks of the node. (The array fails every test that makes
// such a call.)
func TestTheClusterOwnsTheControllerService(t *testing.T) {
	t.Parallel()
	snapshots := snapshotKinds(t).Resource(snapshotKind("volumesnapshots")).Namespace("default")
	no := false
	a := newArray(t, "owned.test", &storagev1.CSIDriverSpec{AttachRequired: &no})
	n := asNode(t, "owner")
	a.serve(n)
	a.volume("owned")
	createPod(t, podWith(n.name, "owned", fromClaim("owned")))
	n.mounted("owned")
	claims := control.client.CoreV1().PersistentVolumeClaims("default")
	for name, source := range map[string]*corev1.TypedLocalObjectReference{
		"unmade": nil, "uncloned": {Kind: "PersistentVolumeClaim", Name: "owned"},
	} {
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &a.name, DataSource: source, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
			},
		}, metav1.CreateOptions{})
		must(t, err)
		createPod(t, podWith(n.name, name, fromClaim(name)))
	}
	_, err := snapshots.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup + "/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"name": "owned"},
		"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": "owned"}},
	}}, metav1.CreateOptions{})
	must(t, err)
	a.changes("owned")
	a.knows(n, "later") // and has then seen all earlier objects
	for command, want := range map[string]string{
		"gc --storage":              "in a cluster, sidecars create the volumes",
		"snapshot create pvc/owned": "external-snapshotter makes its snapshots",
		"snapshot schedule pvc/owned --every=1h --keep=2": "have a CronJob there create a VolumeSnapshot",
		"snapshot restore owned pvc/restored":             "kubectl get volumesnapshots",
		"clone pvc/owned pvc/copy":                        "external-provisioner clones its volume",
		"clone pvc/unknown pvc/copy":                      "no pod on this node uses",
		"delete pvc owned":                                "named by pod default/owned",
		"explain snapshot owned":                          "kubectl describe volumesnapshot owned -n default",
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
		must(t, claims.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	must(t, snapshots.Delete(t.Context(), "owned", metav1.DeleteOptions{}))
	deletePod(t, "later")
	n.gone("owned")
	must(t, claims.Delete(t.Context(), "owned", metav1.DeleteOptions{}))
	a.knows(n, "last")
	n.gone("last")
	if all, err := n.api.Snapshots(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("snapshots %v, %v", all, err)
	}
}

// changes makes the claim ask for more space and for another VolumeAttributesClass.
func (a *array) changes(claim string) {
	a.t.Helper()
	ctx := a.t.Context()
	classes, claims := control.client.StorageV1().StorageClasses(), control.client.CoreV1().PersistentVolumeClaims("default")
	_, err := classes.Patch(ctx, a.name, types.MergePatchType, []byte(`{"allowVolumeExpansion": true}`), metav1.PatchOptions{})
	must(a.t, err)
	_, err = control.client.StorageV1().VolumeAttributesClasses().Create(ctx, &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: a.name}, DriverName: a.name, Parameters: map[string]string{"tier": "gold"},
	}, metav1.CreateOptions{})
	must(a.t, err)
	change := `{"spec": {"resources": {"requests": {"storage": "2Gi"}}, "volumeAttributesClassName": "` + a.name + `"}}`
	_, err = claims.Patch(ctx, claim, types.MergePatchType, []byte(change), metav1.PatchOptions{})
	must(a.t, err)
}

// knows waits until the node has mounted a new volume. The node has then seen all earlier
// changes.
func (a *array) knows(n *node, name string) {
	a.t.Helper()
	a.volume(name)
	createPod(a.t, podWith(n.name, name, fromClaim(name)))
	n.mounted(name)
}
