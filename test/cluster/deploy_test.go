//go:build cluster

package cluster

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// resources are the resource names of the kinds in deploy/.
var resources = map[string]string{
	"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "ClusterRole": "clusterroles",
	"ClusterRoleBinding": "clusterrolebindings", "DaemonSet": "daemonsets", "Service": "services",
	"CSIDriver": "csidrivers", "StorageClass": "storageclasses", "ServiceMonitor": "servicemonitors",
}

// serviceMonitors defines the Prometheus operator's kind with only the fields that deploy/
// uses, with the types from its reference. The server refuses any other field.
const serviceMonitors = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors, singular: servicemonitor}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [endpoints, selector]
            properties:
              selector:
                type: object
                properties:
                  matchLabels: {type: object, additionalProperties: {type: string}}
              endpoints:
                type: array
                items:
                  type: object
                  properties:
                    port: {type: string}
                    path: {type: string}
                    interval: {type: string}
                    relabelings:
                      type: array
                      items:
                        type: object
                        properties:
                          sourceLabels: {type: array, items: {type: string}}
                          targetLabel: {type: string}
`

// document is one object of a file in deploy/.
type document struct {
	file string
	unstructured.Unstructured
}

// documents returns the objects and the paths of the patches in the kustomization in dir.
func documents(t *testing.T, dir string) (found []document, patches []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	must(t, err)
	var list struct {
		Resources []string
		Patches   []struct{ Path string }
	}
	must(t, yaml.Unmarshal(text, &list))
	for _, file := range list.Resources {
		text, err := os.ReadFile(filepath.Join(dir, file))
		must(t, err)
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			d := document{file: filepath.Join(dir, file)}
			must(t, yaml.Unmarshal(doc, &d.Object))
			found = append(found, d)
		}
	}
	for _, p := range list.Patches {
		patches = append(patches, filepath.Join(dir, p.Path))
	}
	return found, patches
}

// dryRun asks the API server whether it accepts the object with every field.
func dryRun(t *testing.T, client dynamic.Interface, d document) error {
	t.Helper()
	gv, err := schema.ParseGroupVersion(d.GetAPIVersion())
	must(t, err)
	var to dynamic.ResourceInterface = client.Resource(gv.WithResource(resources[d.GetKind()]))
	if ns := d.GetNamespace(); ns != "" {
		to = client.Resource(gv.WithResource(resources[d.GetKind()])).Namespace(ns)
	}
	data, err := d.MarshalJSON()
	must(t, err)
	force := true
	_, err = to.Patch(t.Context(), d.GetName(), "application/apply-patch+yaml", data, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict,
	})
	return err
}

// deployed returns a client of a server that has the namespaces and kinds for the objects
// of deploy/.
func deployed(t *testing.T) dynamic.Interface {
	t.Helper()
	for _, name := range []string{"csi-volmgr", "csi-hostpath"} {
		_, err := control.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		made(t, err)
	}
	client, err := dynamic.NewForConfig(control.admin)
	must(t, err)
	var crd unstructured.Unstructured
	must(t, yaml.Unmarshal([]byte(serviceMonitors), &crd.Object))
	kinds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err = kinds.Create(t.Context(), &crd, metav1.CreateOptions{})
	made(t, err)
	monitors := client.Resource(schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"})
	must(t, control.within(t.Context(), "ServiceMonitors are served", func() bool {
		_, err := monitors.List(t.Context(), metav1.ListOptions{})
		return err == nil
	}))
	return client
}

// The API server accepts every object of the kustomizations and knows every field, as
// kubectl apply --dry-run=server would show.
func TestDeployIsTakenByTheServer(t *testing.T) {
	client := deployed(t)
	seen := 0
	for _, dir := range []string{"../../deploy/kustomize", "../../deploy/kustomize/monitoring", "../../deploy/examples/hostpath"} {
		found, _ := documents(t, dir)
		for _, d := range found {
			if err := dryRun(t, client, d); err != nil {
				t.Errorf("%s: %s %s: %v", d.file, d.GetKind(), d.GetName(), err)
			}
		}
		seen += len(found)
	}
	if seen != 5+2+7 {
		t.Errorf("%d objects", seen)
	}
	wrong, _ := documents(t, "../../deploy/kustomize")
	must(t, unstructured.SetNestedField(wrong[len(wrong)-1].Object, "x", "spec", "template", "spec", "hostNetworks"))
	if dryRun(t, client, wrong[len(wrong)-1]) == nil {
		t.Error("a field that does not exist is taken")
	}
}

// The monitoring component changes only what it means to change in the DaemonSet. Its patch
// repeats all arguments, since kustomize replaces them as a list.
func TestMonitoringChangesTheAddressOnly(t *testing.T) {
	client := deployed(t)
	found, _ := documents(t, "../../deploy/kustomize")
	base := found[slices.IndexFunc(found, func(d document) bool { return d.GetKind() == "DaemonSet" })]
	_, patches := documents(t, "../../deploy/kustomize/monitoring")
	if len(patches) != 1 {
		t.Fatalf("patches: %q", patches)
	}
	text, err := os.ReadFile(patches[0])
	must(t, err)
	patch, err := yaml.YAMLToJSON(text)
	must(t, err)
	before, err := base.MarshalJSON()
	must(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, patch, appsv1.DaemonSet{})
	must(t, err)
	patched := document{file: patches[0]}
	must(t, json.Unmarshal(after, &patched.Object))
	must(t, dryRun(t, client, patched))
	var was, is appsv1.DaemonSet
	must(t, json.Unmarshal(before, &was))
	must(t, json.Unmarshal(after, &is))
	want := slices.Clone(was.Spec.Template.Spec.Containers[0].Args)
	at := slices.Index(want, "--http-address=127.0.0.1:9811")
	if at < 0 {
		t.Fatalf("arguments of the base: %q", want)
	}
	want[at] = "--http-address=:9811"
	if got := is.Spec.Template.Spec.Containers[0].Args; !slices.Equal(got, append(want, "--page=false")) {
		t.Errorf("arguments: %q, want %q and --page=false", got, want)
	}
}
