package manifest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

func decode(t *testing.T, text string) []runtime.Object {
	t.Helper()
	objects, err := manifest.Decode("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// seed is the first input of the fuzzing.
const seed = `# A comment alone is a document without an object.
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: app
    image: busybox
    resources: {limits: {cpu: 1, memory: 64Mi}}
    livenessProbe: {httpGet: {port: 8080}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data, readOnly: true}}
`

func TestEveryKindIsRead(t *testing.T) {
	objects := decode(t, `
apiVersion: v1
kind: Pod
metadata: {name: web, creationTimestamp: 2026-01-02T03:04:05Z}
spec:
  containers:
  - name: app
    resources: {limits: {cpu: 1, memory: 64Mi}}
    livenessProbe: {httpGet: {port: 8080}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data, readOnly: true}}
---
# nothing but a comment
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {resources: {requests: {storage: 256Mi}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {capacity: {storage: 1Gi}, csi: {driver: d, volumeHandle: "0123"}}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: d, parameters: {a: "1"}, allowVolumeExpansion: true}
---
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: d}, spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: QQ==, b: Qg==}, stringData: {b: text}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {8080: port, f: "x\ny"}, binaryData: {b: AAE=}}
---
{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {name: va}, spec: {attacher: d, nodeName: n, source: {persistentVolumeName: pv}}, status: {attached: true}}
`)
	if len(objects) != 8 {
		t.Fatalf("got %d objects", len(objects))
	}
	pod := objects[0].(*corev1.Pod)
	if pod.Namespace != "default" || pod.CreationTimestamp.Year() != 2026 || pod.Kind != "Pod" || pod.APIVersion != "v1" {
		t.Errorf("pod: got %+v", pod.ObjectMeta)
	}
	c := pod.Spec.Containers[0]
	if c.Resources.Limits.Cpu().Value() != 1 || c.LivenessProbe.HTTPGet.Port.IntVal != 8080 || !pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly {
		t.Errorf("pod: got %+v", pod.Spec)
	}
	if claim := objects[1].(*corev1.PersistentVolumeClaim); claim.Namespace != "shop" || claim.Spec.Resources.Requests.Storage().Value() != 256<<20 {
		t.Errorf("claim: got %+v", claim)
	}
	if pv := objects[2].(*corev1.PersistentVolume); pv.Spec.CSI.VolumeHandle != "0123" || pv.Namespace != "" {
		t.Errorf("volume: got %+v", pv)
	}
	if class := objects[3].(*storagev1.StorageClass); class.Provisioner != "d" || !*class.AllowVolumeExpansion {
		t.Errorf("class: got %+v", class)
	}
	if d := objects[4].(*storagev1.CSIDriver); *d.Spec.AttachRequired || len(d.Spec.VolumeLifecycleModes) != 1 || *d.Spec.FSGroupPolicy != "ReadWriteOnceWithFSType" {
		t.Errorf("driver: got %+v", d)
	}
	if diff := cmp.Diff(map[string][]byte{"a": []byte("A"), "b": []byte("text")}, objects[5].(*corev1.Secret).Data); diff != "" || objects[5].(*corev1.Secret).StringData != nil {
		t.Errorf("secret: %s", diff)
	}
	if diff := cmp.Diff(map[string]string{"8080": "port", "f": "x\ny"}, objects[6].(*corev1.ConfigMap).Data); diff != "" {
		t.Errorf("configMap: %s", diff)
	}
	if va := objects[7].(*storagev1.VolumeAttachment); !va.Status.Attached || *va.Spec.Source.PersistentVolumeName != "pv" {
		t.Errorf("attachment: got %+v", va)
	}
}

// TestWhatAClusterPrintsIsRead: with the fields that an API server adds, and numbers as people write them.
func TestWhatAClusterPrintsIsRead(t *testing.T) {
	got := decode(t, `
apiVersion: v1
kind: Pod
metadata:
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
  creationTimestamp: "2026-01-02T03:04:05Z"
  generation: 1
  managedFields:
  - {apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:labels": {".": {}}}}, manager: kubectl, operation: Update, time: "2026-01-02T03:04:05Z"}
  name: web
  namespace: default
  resourceVersion: "12"
  selfLink: null
  uid: 0c0ffee0-0000-4000-8000-000000000000
spec:
  containers:
  - name: app
    resources: {requests: {cpu: 1.5, memory: 1e6}}
    volumeMounts: [{name: c, mountPath: /c}]
  securityContext: {fsGroup: 2000}
  tolerations: [{key: a, operator: Exists, tolerationSeconds: 300}]
  volumes:
  - {name: c, configMap: {name: c, defaultMode: 0644, items: [{key: a, path: a, mode: 0o400}]}}
status: {phase: Running, conditions: [{type: Ready, status: "True", lastProbeTime: null}], startTime: "2026-01-02T03:04:05Z"}
`)[0].(*corev1.Pod)
	cm := got.Spec.Volumes[0].ConfigMap
	if *cm.DefaultMode != 0o644 || *cm.Items[0].Mode != 0o400 || got.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 1500 {
		t.Errorf("got %+v", got.Spec)
	}
	if raw := got.ManagedFields[0].FieldsV1.GetRawString(); raw != `{"f:metadata":{"f:labels":{".":{}}}}` {
		t.Errorf("got %s", raw)
	}
}

func TestLists(t *testing.T) {
	for _, text := range []string{
		"{apiVersion: v1, kind: List, metadata: {resourceVersion: ''}, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}]}",
		"{apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: a}}, {metadata: {name: b}}]}",
	} {
		if got := decode(t, text); len(got) != 2 {
			t.Errorf("%s: got %d objects", text, len(got))
		}
	}
}

func TestJSON(t *testing.T) {
	got := decode(t, "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"ConfigMap\",\n\t\"metadata\": {\"name\": \"c\"},\n\t\"data\": {\"a\": \"\\ud83d\\ude00\\/\\u00e9\\t\\\"\\\\ud83d\"}\n}")
	if want := "😀/é\t\"\\ud83d"; got[0].(*corev1.ConfigMap).Data["a"] != want {
		t.Errorf("got %q, want %q", got[0].(*corev1.ConfigMap).Data["a"], want)
	}
}

func TestAliases(t *testing.T) {
	got := decode(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: &x text, b: *x}\n")
	if got[0].(*corev1.ConfigMap).Data["b"] != "text" {
		t.Errorf("got %v", got[0])
	}
}

func TestErrorNamesFileLineDocumentAndField(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"no YAML", "apiVersion: v1\nkind: [Pod\n", "x.yaml:2: document 1: not YAML: did not find expected ',' or ']'"},
		{"tab", "a:\n\t- b\n", "x.yaml:2: document 1: not YAML: found character that cannot start any token"},
		{"bad key", "a: b\n c: d\n", "x.yaml:2: document 1: not YAML: mapping values are not allowed in this context"},
		{
			"unknown field", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  accessMode: [ReadWriteOnce]\n",
			"x.yaml:5: document 1: claim default/data: spec.accessMode: unknown field; did you mean accessModes?",
		},
		{
			"field in another case", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  volumename: x\n",
			"x.yaml:5: document 1: claim default/data: spec.volumename: unknown field; did you mean volumeName?",
		},
		{
			"field like no other", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {zzz: 1}\n",
			"x.yaml:4: document 1: claim default/data: spec.zzz: unknown field",
		},
		{
			"unknown kind of volume", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  volumes:\n  - name: a\n    floppyDisk: {}\n",
			"x.yaml:7: document 1: pod default/web: spec.volumes[0].floppyDisk: unknown field",
		},
		{
			"second document", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n",
			`x.yaml:7: document 2: configMap default/A: metadata.name: found A, want 1 to 253 lower-case letters, digits, dashes and dots, a letter or digit first and last`,
		},
		{
			"string wanted", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: 1\n",
			"x.yaml:5: document 1: configMap default/a: data.x: found a number, want a string (put it in quotes)",
		},
		{"truth value wanted", "apiVersion: v1\nkind: CSIDriver\nmetadata: {name: a}\n", `x.yaml:1: document 1: apiVersion: found "v1", want storage.k8s.io/v1 for a CSIDriver`},
		{
			"bool", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: a}\nspec:\n  attachRequired: 'no'\n",
			"x.yaml:5: document 1: CSIDriver a: spec.attachRequired: found a string, want true or false",
		},
		{
			"number", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {terminationGracePeriodSeconds: soon}\n",
			"x.yaml:4: document 1: pod default/a: spec.terminationGracePeriodSeconds: found a string, want a whole number of 64 bits",
		},
		{
			"number too large", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priority: 4294967296}\n",
			"x.yaml:4: document 1: pod default/a: spec.priority: found a number, want a whole number of 32 bits",
		},
		{
			"quantity", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec:\n  resources:\n    requests: {storage: much}\n",
			"x.yaml:6: document 1: claim default/a: spec.resources.requests.storage: found a string, want a quantity such as 256Mi",
		},
		{
			"unit of bytes", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec:\n  resources:\n    requests: {storage: 10GB}\n",
			`x.yaml:6: document 1: claim default/a: spec.resources.requests.storage: found "10GB", want 10Gi (powers of 1024) or 10G (of 1000)`,
		},
		{
			"unit of bytes, in small letters", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec:\n  resources:\n    requests: {storage: 1.5 kib}\n",
			`x.yaml:6: document 1: claim default/a: spec.resources.requests.storage: found "1.5 kib", want 1.5Ki (powers of 1024) or 1.5k (of 1000)`,
		},
		{
			"unit of another kind", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec:\n  resources:\n    requests: {storage: 7days}\n",
			`x.yaml:6: document 1: claim default/a: spec.resources.requests.storage: found "7days", want a quantity such as 256Mi: a number and one of Ki, Mi, Gi, Ti, Pi, Ei (powers of 1024) or k, M, G, T, P, E (of 1000)`,
		},
		{
			"time", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: today}\n",
			"x.yaml:3: document 1: pod default/a: metadata.creationTimestamp: found a string, want a time such as 2026-01-02T15:04:05Z",
		},
		{
			"list wanted", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: {}}\n",
			"x.yaml:4: document 1: pod default/a: spec.volumes: found an object with fields, want a list",
		},
		{
			"object wanted", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: [a]\n",
			"x.yaml:4: document 1: pod default/a: spec: found a list, want an object with fields",
		},
		{
			"field twice", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\ndata: {c: d}\n",
			"x.yaml:5: document 1: configMap default/a: data: already in line 4",
		},
		{
			"merge key", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {<<: {a: b}}\n",
			"x.yaml:4: document 1: configMap default/a: data: found a merge key (<<) as the name of a field, want a plain name",
		},
		{
			"kind misspelt", "apiVersion: v1\nkind: persistentvolumeclaim\n",
			`x.yaml:2: document 1: kind: found "persistentvolumeclaim", want one of CSIDriver, ClusterTrustBundle, ConfigMap, Endpoints, PersistentVolume, PersistentVolumeClaim, Pod, Secret, StorageClass, VolumeAttachment, VolumeAttributesClass, VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, List; did you mean PersistentVolumeClaim?`,
		},
		{
			"no kind", "apiVersion: v1\nname: x\n",
			`x.yaml:1: document 1: kind: missing; want one of CSIDriver, ClusterTrustBundle, ConfigMap, Endpoints, PersistentVolume, PersistentVolumeClaim, Pod, Secret, StorageClass, VolumeAttachment, VolumeAttributesClass, VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, List`,
		},
		{"no object", "- a\n", "x.yaml:1: document 1: found a list, want an object with apiVersion and kind"},
		{
			"no name", "apiVersion: v1\nkind: ConfigMap\n",
			`x.yaml:1: document 1: configMap default/"": metadata.name: found "", want 1 to 253 lower-case letters, digits, dashes and dots, a letter or digit first and last`,
		},
		{
			"name that is a path", "apiVersion: v1\nkind: Pod\nmetadata: {name: ../../etc}\n",
			`x.yaml:3: document 1: pod default/"../../etc": metadata.name: found "../../etc", want 1 to 253 lower-case letters, digits, dashes and dots, a letter or digit first and last`,
		},
		{
			"name with NUL", "apiVersion: v1\nkind: Pod\nmetadata: {name: \"a\\0b\"}\n",
			`x.yaml:3: document 1: pod default/"a\x00b": metadata.name: found "a\x00b", want 1 to 253 lower-case letters, digits, dashes and dots, a letter or digit first and last`,
		},
		{
			"uid that is a path", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  uid: ..\n",
			`x.yaml:5: document 1: pod default/a: metadata.uid: found "..", want 1 to 63 letters, digits and dashes, a letter or digit first and last`,
		},
		{
			"mount of no volume", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: b\n    volumeMounts:\n    - {name: c, mountPath: /c}\n",
			"x.yaml:8: document 1: pod default/a: spec.containers[0].volumeMounts[0].name: found c, want the name of one of the pod's spec.volumes",
		},
		{
			"object twice", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n",
			"x.yaml:5: document 2: configMap default/a: already in line 1 of this file",
		},
		{
			"list in a list", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List}]}",
			`x.yaml:1: document 1: kind: found "List", want one of CSIDriver, ClusterTrustBundle, ConfigMap, Endpoints, PersistentVolume, PersistentVolumeClaim, Pod, Secret, StorageClass, VolumeAttachment, VolumeAttributesClass, VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, List`,
		},
		{"a beta version", "apiVersion: snapshot.storage.k8s.io/v1beta1\nkind: VolumeSnapshotClass\n", `x.yaml:1: document 1: apiVersion: found "snapshot.storage.k8s.io/v1beta1", want snapshot.storage.k8s.io/v1 for a VolumeSnapshotClass`},
		{"list with a field", "{apiVersion: v1, kind: List, item: []}", "x.yaml:1: document 1: item: unknown field of a list; want items"},
		{
			"key that is a path", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  ../x: y\n",
			`x.yaml:5: document 1: configMap default/a: data: found "../x", want keys of letters, digits, '-', '_' and '.', at most 253 bytes, not beginning with '..'`,
		},
		{
			"base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: '?'}\n",
			"x.yaml:4: document 1: secret default/a: data.k: not base64; want base64, or the plain text under stringData of a Secret or data of a ConfigMap",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects, err := manifest.Decode("x.yaml", []byte(test.text))
			if err == nil {
				t.Fatalf("no error, but %v", objects)
			}
			if err.Error() != test.want {
				t.Errorf("\n got %s\nwant %s", err, test.want)
			}
			if e, ok := errors.AsType[*manifest.Error](err); !ok || e.File != "x.yaml" || e.Line == 0 || e.Document == 0 {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestAllErrorsAreToldAndNoObjectIsReturned(t *testing.T) {
	objects, err := manifest.Decode("x.yaml", []byte(strings.Repeat("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n", 3)))
	if list, ok := errors.AsType[manifest.Errors](err); !ok || len(list) != 5 || objects != nil {
		t.Errorf("got %v, %v", objects, err) // three bad names, two repeated objects
	}
	_, err = manifest.Decode("x.yaml", []byte(strings.Repeat("---\nkind: A\n", 1000)))
	if list, ok := errors.AsType[manifest.Errors](err); !ok || len(list) != 20 {
		t.Errorf("got %d errors", len(list))
	}
}

// TestNoSecretInAnError: rule 7.
func TestNoSecretInAnError(t *testing.T) {
	const secret = "hunter2"
	for _, text := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: '" + secret + "!'}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: " + secret + "\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: [" + secret + "]\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: [" + secret + "]}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: {a: " + secret + "}}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: !!int " + secret + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: !!binary " + secret + "!}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ntype: {x: " + secret + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a, creationTimestamp: " + secret + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nimmutable: " + secret + "\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: " + secret + "\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: \"\\x" + secret + "\"}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  k: |\n   a\n " + secret + "\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: *" + secret + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  k: a\n  " + secret + "\n",
	} {
		_, err := manifest.Decode("x.yaml", []byte(text))
		if err == nil {
			t.Errorf("no error for %q", text)
		} else if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("the secret is in: %v", err)
		}
	}
}

func TestLimits(t *testing.T) {
	configMap := func(i int) string {
		return fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}}\n", i)
	}
	var many strings.Builder
	for i := range manifest.MaxObjects {
		many.WriteString(configMap(i))
	}
	if _, err := manifest.Decode("x.yaml", []byte(many.String())); err != nil {
		t.Errorf("%d objects: %v", manifest.MaxObjects, err)
	}
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), c-1)
	}
	for name, test := range map[string]struct{ text, want string }{
		"objects":  {many.String() + configMap(manifest.MaxObjects), "want at most 4096 "},
		"bytes":    {strings.Repeat("#", manifest.MaxBytes+1), "found 4194305 bytes, want at most 4194304"},
		"depth":    {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: " + strings.Repeat("[", 5000), "x.yaml"},
		"items":    {"apiVersion: v1\nkind: ConfigMapList\nitems:\n" + strings.Repeat("- {}\n", manifest.MaxObjects+1), "x.yaml"},
		"cycle":    {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: &s {affinity: {podAffinity: *s}}\n", "inside the value that it refers to"},
		"list":     {"apiVersion: v1\nkind: List\nitems: &i [{apiVersion: v1, kind: List, items: *i}]\n", "inside the value that it refers to"},
		"lists":    {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]\n", `found "List"`},
		"bomb":     {bomb + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: *i\n", "x.yaml"},
		"quantity": {"x: &x [*x]\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {resources: {requests: {storage: *x}}}\n", "x.yaml"},
	} {
		if _, err := manifest.Decode("x.yaml", []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, test.want)
		}
	}
}

func TestUIDsAreTheSameEachTime(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: web}}"
	first, again := decode(t, pod)[0].(*corev1.Pod), decode(t, pod)[0].(*corev1.Pod)
	other := decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: other}}")[0].(*corev1.Pod)
	given := decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, uid: x-1}}")[0].(*corev1.Pod)
	claim := decode(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: web}}")[0].(*corev1.PersistentVolumeClaim)
	if first.UID != again.UID || first.UID == other.UID || first.UID == claim.UID || given.UID != "x-1" {
		t.Errorf("got %s, %s, %s, %s, %s", first.UID, again.UID, other.UID, claim.UID, given.UID)
	}
	// Paths on disk contain this UID: it must never change.
	if want := "278311f0-e6cd-8066-a82c-e2b5f6f76576"; string(first.UID) != want {
		t.Errorf("got %s, want %s", first.UID, want)
	}
}

func TestEncodeIsReloaded(t *testing.T) {
	for _, obj := range decode(t, `
{apiVersion: v1, kind: Pod, metadata: {name: web, creationTimestamp: 2026-01-02T03:04:05Z}, spec: {containers: [{name: a, resources: {limits: {cpu: 100m}}}], volumes: [{name: a, emptyDir: {sizeLimit: 1Mi}}]}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: AAH/}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: d}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: "\u2028 \U0001F600 <>&\t"}}
`) {
		for _, as := range []func(runtime.Object) ([]byte, error){manifest.Encode, manifest.Keep} {
			b, err := as(obj)
			if err != nil {
				t.Fatal(err)
			}
			back, err := manifest.Reload("kept", b)
			if err != nil || len(back) != 1 || !equality.Semantic.DeepEqual(obj, back[0]) {
				t.Errorf("%q: got %v, %v", b, back, err)
			}
		}
	}
	for _, as := range []func(runtime.Object) ([]byte, error){manifest.Encode, manifest.Keep} {
		if _, err := as(&corev1.Node{}); err == nil {
			t.Error("a Node was encoded")
		}
	}
}

// FuzzDecode: no input causes a panic or an object along with an error; every object passes the checks, and survives
// being stored and reloaded.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(seed))
	f.Add([]byte("{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"},\"data\":{\"a\":\"\\ud83d\"}}"))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- &a {apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}\n- *a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := manifest.Decode("f", data)
		if err != nil && objects != nil {
			t.Error("objects with an error")
		}
		for _, o := range objects {
			if faults := resolve.Check(o); len(faults) > 0 {
				t.Errorf("%v: %v", o, faults)
			}
			for _, as := range []func(runtime.Object) ([]byte, error){manifest.Encode, manifest.Keep} {
				b, err := as(o)
				if err != nil {
					t.Fatal(err)
				}
				back, err := manifest.Reload("kept", b)
				if err != nil || !equality.Semantic.DeepEqual(o, back[0]) {
					t.Errorf("kept %q: got %v, %v", b, back, err)
				}
			}
		}
	})
}

// What the API server takes otherwise than it is written is taken so here, and noted: an object without a namespace has
// none, and a PersistentVolume that was to be emptied is retained. JSON, as of kubectl get, is decoded alike.
func TestWhatIsTakenOtherwiseIsNoted(t *testing.T) {
	const volume = `{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"%s}, "spec": {%s` +
		`"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}}}`
	const space, recycle = `, "namespace": "b"`, `"persistentVolumeReclaimPolicy": "Recycle", `
	for text, want := range map[string]string{
		fmt.Sprintf(volume, "", ""):      "",
		fmt.Sprintf(volume, space, ""):   "metadata.namespace is ignored: a PersistentVolume has none",
		fmt.Sprintf(volume, "", recycle): "spec.persistentVolumeReclaimPolicy Recycle is taken as Retain: csi-volmgr empties no volume",
		"\n# YAML\n" + fmt.Sprintf(volume, space, recycle): "metadata.namespace is ignored: a PersistentVolume has none; " +
			"spec.persistentVolumeReclaimPolicy Recycle is taken as Retain: csi-volmgr empties no volume",
	} {
		objects, notes, err := manifest.DecodeContext(t.Context(), "f", []byte(text))
		if err != nil || len(objects) != 1 {
			t.Fatalf("%s: %v, %v", text, objects, err)
		}
		pv := objects[0].(*corev1.PersistentVolume)
		if pv.Namespace != "" || pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
			t.Errorf("%s: namespace %q, policy %s", text, pv.Namespace, pv.Spec.PersistentVolumeReclaimPolicy)
		}
		if got := notes[resolve.Key{Kind: "PersistentVolume", Name: "a"}]; got != want {
			t.Errorf("%s: note %q, want %q", text, got, want)
		}
	}
}
