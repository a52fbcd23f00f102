//go:build cluster

package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// resources are how the kinds of deploy/ are called in requests.
var resources = map[string]string{
	"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "ClusterRole": "clusterroles",
	"ClusterRoleBinding": "clusterrolebindings", "DaemonSet": "daemonsets",
}

// The API server takes every object that kustomization.yaml lists, as
// kubectl apply --dry-run=server would show, and knows every field.
func TestDeployIsTakenByTheServer(t *testing.T) {
	dir := "../../deploy/kustomize"
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	must(t, err)
	var list struct{ Resources []string }
	must(t, yaml.Unmarshal(text, &list))
	_, err = control.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "csi-volmgr"}}, metav1.CreateOptions{})
	must(t, err)
	client, err := dynamic.NewForConfig(control.admin)
	must(t, err)
	seen := 0
	for _, file := range list.Resources {
		text, err := os.ReadFile(filepath.Join(dir, file))
		must(t, err)
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			var o unstructured.Unstructured
			must(t, yaml.Unmarshal(doc, &o.Object))
			gv, err := schema.ParseGroupVersion(o.GetAPIVersion())
			must(t, err)
			var to dynamic.ResourceInterface = client.Resource(gv.WithResource(resources[o.GetKind()]))
			if ns := o.GetNamespace(); ns != "" {
				to = client.Resource(gv.WithResource(resources[o.GetKind()])).Namespace(ns)
			}
			data, err := o.MarshalJSON()
			must(t, err)
			force := true
			if _, err := to.Patch(t.Context(), o.GetName(), "application/apply-patch+yaml", data, metav1.PatchOptions{
				DryRun: []string{metav1.DryRunAll}, FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict,
			}); err != nil {
				t.Errorf("%s: %s %s: %v", file, o.GetKind(), o.GetName(), err)
			}
			seen++
		}
	}
	if seen < 5 {
		t.Errorf("only %d objects", seen)
	}
}
