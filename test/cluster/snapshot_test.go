//go:build cluster

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

const snapshotGroup = "snapshot.storage.k8s.io"

func snapshotKind(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: snapshotGroup, Version: "v1", Resource: plural}
}

// snapshotKinds makes the server serve the kinds of external-snapshotter, from its client's
// module.
func snapshotKinds(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(control.admin)
	must(t, err)
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	list.Dir, list.Stderr = "sidecars", os.Stderr
	dir, err := list.Output()
	must(t, err)
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, plural := range []string{"volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", snapshotGroup+"_"+plural+".yaml"))
		must(t, err)
		var crd unstructured.Unstructured
		must(t, yaml.Unmarshal(text, &crd.Object))
		_, err = crds.Create(t.Context(), &crd, metav1.CreateOptions{})
		made(t, err)
		must(t, control.within(t.Context(), plural+" are served", func() bool {
			_, err := client.Resource(snapshotKind(plural)).List(t.Context(), metav1.ListOptions{})
			return err == nil
		}))
	}
	return client
}

// snapshots is snapshotKinds, and starts external-snapshotter's snapshot-controller.
func snapshots(t *testing.T) dynamic.Interface {
	t.Helper()
	client := snapshotKinds(t)
	startSidecar(t, control.dir, "snapshot-controller", nil)
	return client
}

// snapshot makes external-snapshotter take a snapshot of the claim's volume, and waits
// until it is ready.
func (s *shared) snapshot(n *node, client dynamic.Interface, claim, name string) {
	s.t.Helper()
	all := client.Resource(snapshotKind("volumesnapshots")).Namespace("default")
	_, err := client.Resource(snapshotKind("volumesnapshotclasses")).Create(s.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup + "/v1", "kind": "VolumeSnapshotClass", "metadata": map[string]any{"name": s.name},
		"driver": s.name, "deletionPolicy": "Delete",
	}}, metav1.CreateOptions{})
	must(s.t, err)
	_, err = all.Create(s.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup + "/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"volumeSnapshotClassName": s.name, "source": map[string]any{"persistentVolumeClaimName": claim}},
	}}, metav1.CreateOptions{})
	must(s.t, err)
	n.eventually("snapshot "+name+" is ready", func() bool {
		o, err := all.Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		ready, _, _ := unstructured.NestedBool(o.Object, "status", "readyToUse")
		return ready
	})
}

// external-snapshotter takes a snapshot of a volume that a pod has. One claim is restored
// from the snapshot, and another is cloned from the volume. Their pods read what the volume
// had when each was made.
//
// Faults: A171.
// Scenarios: U-132, U-136, U-143.
func TestASnapshotIsRestored(t *testing.T) {
	t.Parallel()
	client := snapshots(t)
	s := newShared(t, "snapshot.test", map[string]string{"snapshot": "east"}, "csi-provisioner", "csi-attacher", "csi-snapshotter")
	n := asNode(t, "snapshot")
	s.serve(n)
	s.claim("origin", "1Gi", nil)
	createPod(t, podWith(n.name, "origin", fromClaim("origin")))
	file := filepath.Join(n.at("origin", "data"), "file")
	must(t, os.WriteFile(file, []byte("before"), 0o600))
	s.snapshot(n, client, "origin", "taken")
	must(t, os.WriteFile(file, []byte("after"), 0o600))
	group := snapshotGroup
	s.claim("restored", "1Gi", &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "taken"})
	s.claim("cloned", "1Gi", &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "origin"})
	createPod(t, podWith(n.name, "restored", fromClaim("restored")))
	createPod(t, podWith(n.name, "cloned", fromClaim("cloned")))
	n.hasFile(filepath.Join(n.at("restored", "data"), "file"), "before")
	n.hasFile(filepath.Join(n.at("cloned", "data"), "file"), "after")
	must(t, client.Resource(snapshotKind("volumesnapshots")).Namespace("default").Delete(t.Context(), "taken", metav1.DeleteOptions{}))
	n.eventually("the snapshot is deleted", func() bool { return len(s.model().Snapshots) == 0 })
	deletePod(t, "restored")
	deletePod(t, "cloned")
	n.gone("origin")
	for _, claim := range []string{"restored", "cloned", "origin"} {
		s.unclaim(n, claim)
	}
}
