package content_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

// world is a pod and the objects beside it, by name.
type world struct {
	pod     *corev1.Pod
	maps    map[string]*corev1.ConfigMap
	secrets map[string]*corev1.Secret
	bundles []*certificatesv1.ClusterTrustBundle
	err     error
}

func (w *world) TrustBundles() ([]*certificatesv1.ClusterTrustBundle, error) { return w.bundles, w.err }

func (w *world) ConfigMap(_, name string) (*corev1.ConfigMap, error) { return w.maps[name], w.err }
func (w *world) Secret(_, name string) (*corev1.Secret, error)       { return w.secrets[name], w.err }
func (w *world) Pod() (*corev1.Pod, error)                           { return w.pod, w.err }

const podYAML = `
metadata:
  name: web
  namespace: shop
  uid: 7f3c2a10
  labels: {app: web, tier: "a \"b\""}
  annotations: {example.com/Note: "line\nbreak", z: "1"}
spec:
  containers:
  - name: main
    resources:
      limits: {cpu: 1500m, memory: 100Mi, hugepages-2Mi: 4Mi}
      requests: {cpu: 250m}
  - name: free
  initContainers:
  - name: first
    resources: {limits: {memory: 1k}}
`

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		maps:    map[string]*corev1.ConfigMap{"conf": {Data: map[string]string{"a": "map a", "b": "map b"}, BinaryData: map[string][]byte{"c": {0}}}},
		secrets: map[string]*corev1.Secret{"cert": {Data: map[string][]byte{"a": []byte("secret a"), "key": []byte("secret key")}}},
		pod:     &corev1.Pod{},
	}
	if err := yaml.UnmarshalStrict([]byte(podYAML), w.pod); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) reader() content.Reader {
	return content.Reader{Namespace: "shop", Objects: w, Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
	}}
}

func decode[T any](t testing.TB, text string) (src T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &src); err != nil {
		t.Fatal(err)
	}
	return src
}

// shown returns the files as "mode content".
func shown(files content.Files) map[string]string {
	all := map[string]string{}
	for path, f := range files {
		all[path] = fmt.Sprintf("%04o %s", f.Mode, f.Data)
	}
	return all
}

func wantFiles(t *testing.T, files content.Files, err error, want map[string]string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, shown(files)); diff != "" {
		t.Error(diff)
	}
}

func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want %q in it", err, w)
		}
	}
}

// L08: labels and annotations as sorted lines, one of them by its key.
// Items: L08.
func TestDownwardAPIFields(t *testing.T) {
	files, err := newWorld(t).reader().DownwardAPI(decode[corev1.DownwardAPIVolumeSource](t, `
defaultMode: 288
items:
- {path: name, fieldRef: {fieldPath: metadata.name}}
- {path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}
- {path: uid, fieldRef: {fieldPath: metadata.uid}, mode: 256}
- {path: labels, fieldRef: {fieldPath: metadata.labels}}
- {path: deep/annotations, fieldRef: {fieldPath: metadata.annotations}}
- {path: app, fieldRef: {fieldPath: "metadata.labels['app']"}}
- {path: note, fieldRef: {fieldPath: "metadata.annotations['example.com/Note']"}}
- {path: none, fieldRef: {fieldPath: "metadata.labels['other']"}}
`))
	wantFiles(t, files, err, map[string]string{
		"name": "0440 web", "namespace": "0440 shop", "uid": "0400 7f3c2a10",
		"labels":           "0440 app=\"web\"\ntier=\"a \\\"b\\\"\"",
		"deep/annotations": "0440 example.com/Note=\"line\\nbreak\"\nz=\"1\"",
		"app":              "0440 web", "note": "0440 line\nbreak", "none": "0440 ",
	})
}

// L08: rounded up to the divisor; without a limit it is what the node has, and
// without a request it is the limit.
// Items: L08.
func TestDownwardAPIResources(t *testing.T) {
	for _, tc := range []struct{ container, resource, divisor, want string }{
		{"main", "limits.cpu", "", "2"},
		{"main", "limits.cpu", "1m", "1500"},
		{"main", "requests.cpu", "1", "1"},
		{"main", "requests.cpu", "1m", "250"},
		{"main", "limits.memory", "", "104857600"},
		{"main", "limits.memory", "1Mi", "100"},
		{"main", "limits.memory", "1Gi", "1"},
		{"main", "requests.memory", "1Mi", "100"},
		{"main", "limits.hugepages-2Mi", "1Mi", "4"},
		{"free", "limits.cpu", "", "8"},
		{"free", "limits.memory", "1Gi", "16"},
		{"free", "requests.memory", "", "0"},
		{"first", "limits.memory", "1k", "1"},
	} {
		item := corev1.DownwardAPIVolumeFile{Path: "x", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.resource}}
		if tc.divisor != "" {
			item.ResourceFieldRef.Divisor = resource.MustParse(tc.divisor)
		}
		files, err := newWorld(t).reader().DownwardAPI(corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{item}})
		if got := string(files["x"].Data); err != nil || got != tc.want {
			t.Errorf("%s of %s by %q: got %q, %v, want %q", tc.resource, tc.container, tc.divisor, got, err, tc.want)
		}
	}
}

func TestDownwardAPIErrorsNameEveryItem(t *testing.T) {
	_, err := newWorld(t).reader().DownwardAPI(decode[corev1.DownwardAPIVolumeSource](t, `
items:
- {path: a, fieldRef: {fieldPath: spec.nodeName}}
- {path: b, fieldRef: {fieldPath: "metadata.labels['x"}}
- {path: c, fieldRef: {apiVersion: v2, fieldPath: metadata.name}}
- {path: d, resourceFieldRef: {containerName: nope, resource: limits.cpu}}
- {path: e, resourceFieldRef: {containerName: main, resource: limits.gpu}}
- {path: f, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: "-1"}}
- {path: g}
- {path: ../h, fieldRef: {fieldPath: metadata.name}}
- {path: i, mode: 512, fieldRef: {fieldPath: metadata.name}}
`))
	wantError(t, err, `items[0].fieldRef: fieldPath: found "spec.nodeName"`, "items[1].fieldRef: fieldPath", `items[2].fieldRef: apiVersion: found "v2"`,
		`items[3].resourceFieldRef: containerName: the pod has no container "nope"`, `items[4].resourceFieldRef: resource: found "limits.gpu"`,
		"items[5].resourceFieldRef: divisor: found -1", "items[6].fieldRef and resourceFieldRef", `items[7].path: path "../h"`, "items[8].mode: 01000")
	if !errors.Is(err, content.ErrField) || !errors.Is(err, content.ErrPath) {
		t.Errorf("got %v, want it to wrap ErrField and ErrPath", err)
	}
}

// L09: sources are merged, the later one wins a path that two have, items have modes.
// Items: L09.
func TestProjectedMergesItsSources(t *testing.T) {
	files, err := newWorld(t).reader().Projected(decode[corev1.ProjectedVolumeSource](t, `
defaultMode: 256
sources:
- configMap: {name: conf}
- secret: {name: cert, items: [{key: a, path: a, mode: 384}, {key: key, path: tls/key}]}
- downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
- configMap: {name: nope, optional: true}
- secret: {name: cert, optional: true, items: [{key: nope, path: x}]}
`))
	wantFiles(t, files, err, map[string]string{
		"a": "0600 secret a", "b": "0400 map b", "c": "0400 \x00", "tls/key": "0400 secret key", "name": "0400 web",
	})
}

// Items: L09.
func TestProjectedErrorsNameEverySource(t *testing.T) {
	_, err := newWorld(t).reader().Projected(decode[corev1.ProjectedVolumeSource](t, `
sources:
- configMap: {name: nope}
- secret: {name: cert, items: [{key: nope, path: x}]}
- downwardAPI: {items: [{path: x}]}
- serviceAccountToken: {path: token}
- clusterTrustBundle: {name: x, path: y}
- podCertificate: {signerName: x/y, keyType: ED25519, credentialBundlePath: z}
- {}
- {configMap: {name: conf}, secret: {name: cert}}
`))
	wantError(t, err, "sources[0].configMap: configMap shop/nope: not found", `sources[1].secret: secret shop/cert: items[0].key "nope": no such key`,
		"sources[2].downwardAPI: items[0].", "sources[3].serviceAccountToken: no issuer of service account tokens here", "sources[4].clusterTrustBundle: ClusterTrustBundle \"x\": not found",
		"sources[5].podCertificate: needs", "sources[6]: want exactly one", "sources[7]: want exactly one")
	for _, e := range []error{content.ErrNotFound, content.ErrNoKey, content.ErrNeedsCluster} {
		if !errors.Is(err, e) {
			t.Errorf("got %v, want it to wrap %v", err, e)
		}
	}
}

func TestProjectedRefusesAFileThatIsADirectory(t *testing.T) {
	_, err := newWorld(t).reader().Projected(decode[corev1.ProjectedVolumeSource](t, `
sources:
- configMap: {name: conf}
- secret: {name: cert, items: [{key: a, path: a/b}]}
`))
	if !errors.Is(err, content.ErrPath) {
		t.Errorf("got %v, want ErrPath", err)
	}
}

func TestWhatIsNotKnownIsNoContent(t *testing.T) {
	w := newWorld(t)
	w.err = errors.New("cannot be read")
	_, secret := w.reader().Secret(corev1.SecretVolumeSource{SecretName: "cert", Optional: new(true)})
	_, configMap := w.reader().ConfigMap(corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}, Optional: new(true)})
	_, downward := w.reader().DownwardAPI(corev1.DownwardAPIVolumeSource{})
	for _, err := range []error{secret, configMap, downward} {
		if !errors.Is(err, w.err) {
			t.Errorf("got %v, want %v", err, w.err)
		}
	}
}

func TestOnlySourcesOfConfigMapsAndThePodAreNotSecret(t *testing.T) {
	for text, want := range map[string]bool{
		"sources: [{configMap: {name: a}}, {downwardAPI: {}}]": false,
		"sources: [{configMap: {name: a}}, {secret: {}}]":      true,
		"sources: [{serviceAccountToken: {path: a}}]":          true,
		"sources: [{podCertificate: {}}]":                      true,
		"{}":                                                   false,
	} {
		if got := content.HasSecret(decode[corev1.ProjectedVolumeSource](t, text)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestRevisionDiffersWithPathsContentAndKey(t *testing.T) {
	sets := []content.Files{
		nil, {"a": {}}, {"b": {}}, {"a": {Data: []byte("b")}}, {"ab": {}}, {"a": {Data: []byte("1")}, "b": {Data: []byte("2")}}, {"a": {Data: []byte("2")}, "b": {Data: []byte("1")}},
	}
	seen := map[string]bool{}
	for _, files := range sets {
		for _, key := range [][]byte{nil, []byte("one"), []byte("two")} {
			seen[files.Revision(key)] = true
			if files.Revision(key) != maps.Clone(files).Revision(slices.Clone(key)) {
				t.Errorf("%v: two revisions of the same", files)
			}
		}
	}
	if len(seen) != 3*len(sets) {
		t.Errorf("got %d revisions, want %d", len(seen), 3*len(sets))
	}
}

// The revision of the same files must not change between versions: records contain it, and
// the daemon writes a volume again if its revision differs.
func TestRevisionStaysThatOfEarlierVersions(t *testing.T) {
	files := content.Files{"d/b": {}, "a": {Data: []byte("1")}}
	for key, want := range map[string]string{
		"":    "cc5620a7d78ecea2cb0c23d4df2ea9675e33c0aa53dfd349a33d9eaf9f92f1e6",
		"key": "55e9dd058839ca8fd6b740604c97a6b33275908b887414baf8cd03d17c1709a1",
	} {
		var k []byte
		if key != "" {
			k = []byte(key)
		}
		if got := files.Revision(k); got != want {
			t.Errorf("with the key %q: %s, want %s", key, got, want)
		}
	}
}

// BenchmarkRead measures what the daemon does twice for each volume: its files and their revision.
func BenchmarkRead(b *testing.B) {
	w := newWorld(b)
	r := w.reader()
	r.Token = func(string, time.Duration) ([]byte, error) { return []byte("token"), nil }
	projected := decode[corev1.ProjectedVolumeSource](b, `
sources:
- serviceAccountToken: {path: token, expirationSeconds: 3607}
- configMap: {name: conf, items: [{key: a, path: ca.crt}]}
- downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
`)
	for name, read := range map[string]func() (content.Files, error){
		"configMap": func() (content.Files, error) {
			return r.ConfigMap(corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}})
		},
		"projected": func() (content.Files, error) { return r.Projected(projected) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				files, err := read()
				if err != nil {
					b.Fatal(err)
				}
				files.Revision(nil)
			}
		})
	}
}

func TestOfAKeyThatIsBothTheTextCounts(t *testing.T) {
	w := newWorld(t)
	w.maps["conf"] = &corev1.ConfigMap{Data: map[string]string{"a": "text"}, BinaryData: map[string][]byte{"a": {0}, "b": {1}}}
	got, err := w.reader().ConfigMap(corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}})
	want := content.Files{"a": {Data: []byte("text"), Mode: 0o644}, "b": {Data: []byte{1}, Mode: 0o644}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v: %s", err, d)
	}
}
