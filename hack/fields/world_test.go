package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// documents are the objects of testdata/world.yaml, as an author writes them.
type documents []map[string]any

func read(t *testing.T) documents {
	t.Helper()
	text, err := os.ReadFile("testdata/world.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all documents
	for one := range strings.SplitSeq(string(text), "\n---\n") {
		var doc map[string]any
		if err := yaml.UnmarshalStrict([]byte(one), &doc); err != nil {
			t.Fatal(err)
		}
		all = append(all, doc)
	}
	return all
}

// object returns the object of a kind and name, the first of the kind without a name.
func (d documents) object(kind, name string) map[string]any {
	i := slices.IndexFunc(d, func(doc map[string]any) bool {
		return doc["kind"] == kind && (name == "" || doc["metadata"].(map[string]any)["name"] == name)
	})
	return d[i]
}

// put sets the value at a path of an object, in the first item of each list, to a YAML
// value. It makes missing parents.
func put(in map[string]any, path, value string) error {
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		return err
	}
	parts := strings.Split(path, ".")
	for i, part := range parts {
		name, list := strings.CutSuffix(part, "[]")
		last := i == len(parts)-1
		if !list {
			if last {
				in[name] = v
				return nil
			}
			next, ok := in[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				in[name] = next
			}
			in = next
			continue
		}
		items, _ := in[name].([]any)
		if len(items) == 0 {
			items = []any{map[string]any{}}
		}
		in[name] = items
		if last {
			items[0] = v
			return nil
		}
		in = items[0].(map[string]any)
	}
	return nil
}

// only makes the source at a path the only one of its volume.
func only(object map[string]any, path string) {
	source := path[strings.LastIndex(path, ".")+1:]
	in := object["spec"].(map[string]any)
	if strings.HasPrefix(path, "spec.volumes[]") {
		in = in["volumes"].([]any)[0].(map[string]any)
	}
	for name := range in {
		if _, is := kindsOfVolumes()[name]; is && name != source {
			delete(in, name)
		}
	}
}

// kindsOfVolumes are the names of the sources of volumes.
var kindsOfVolumes = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, f := range fields() {
		for _, prefix := range []string{"spec.volumes[].", "spec."} {
			if rest, ok := strings.CutPrefix(f.path, prefix); ok && (f.kind == "Pod") == (prefix != "spec.") {
				if name, _, below := strings.Cut(rest, "."); below && name != "claimRef" && name != "nodeAffinity" && f.kind != "PersistentVolumeClaim" {
					names[name] = true
				}
			}
		}
	}
	return names
})

// world has the objects as csi-volmgr's sources have them.
type world struct {
	objects map[resolve.Key]runtime.Object
}

// decode reads the objects as csi-volmgr reads manifests.
func (d documents) decode() (*world, error) {
	var text []byte
	for i, doc := range d {
		b, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, "\n---\n"...)
		}
		text = append(text, b...)
	}
	objects, err := manifest.Decode("world.yaml", text)
	if err != nil {
		return nil, err
	}
	w := &world{map[resolve.Key]runtime.Object{}}
	for _, o := range objects {
		key, err := resolve.KeyOf(o)
		if err != nil {
			return nil, err
		}
		w.objects[key] = o
	}
	return w, nil
}

func (w *world) Get(k resolve.Key) runtime.Object {
	if k.Kind == resolve.KindTrustBundles {
		list := &certificatesv1.ClusterTrustBundleList{}
		for _, b := range each[*certificatesv1.ClusterTrustBundle](w) {
			list.Items = append(list.Items, *b)
		}
		return list
	}
	if o, ok := w.objects[k]; ok {
		return o
	}
	return nil
}

func (w *world) Binding(resolve.Key) resolve.Binding { return resolve.Binding{} }
func (w *world) Unread(resolve.Key) string           { return "" }

func (w *world) VolumesOf(namespace, claim string) (all []*corev1.PersistentVolume) {
	for _, pv := range each[*corev1.PersistentVolume](w) {
		if ref := pv.Spec.ClaimRef; ref != nil && ref.Namespace == namespace && ref.Name == claim {
			all = append(all, pv)
		}
	}
	return all
}

func (w *world) Holders(volume string) (_ resolve.Owner, all []*corev1.PersistentVolumeClaim) {
	for _, c := range each[*corev1.PersistentVolumeClaim](w) {
		if c.Spec.VolumeName == volume {
			all = append(all, c)
		}
	}
	return resolve.Owner{}, all
}

// each lists the objects of a type by name.
func each[T runtime.Object](w *world) (all []T) {
	for _, key := range slices.SortedFunc(maps.Keys(w.objects), resolve.Key.Compare) {
		if o, ok := w.objects[key].(T); ok {
			all = append(all, o)
		}
	}
	return all
}

func config() resolve.Config {
	c := resolve.Config{
		Layout: state.Layout{Root: "/r"}, NodeName: "node-1", Tokens: true, Certificates: true,
		SELinux:     resolve.SELinux{FileLabel: "system_u:object_r:container_file_t:s0", AllModes: true},
		Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")},
	}
	for _, k := range kind.All() {
		c.Builtins = append(c.Builtins, k.Name)
	}
	return c
}

// unmade is in the problem of a pod that waits for a volume that is not made yet.
const unmade = "is to make a volume of class"

// seen returns what csi-volmgr resolves from the objects: for each pod its wanted volumes,
// their files, and its containers' mounts; for each claim the request to the controller.
// problems are the objections.
func (w *world) seen() (text string, problems []string) {
	var all []any
	for _, pod := range each[*corev1.Pod](w) {
		want := resolve.Pod(pod, w, config())
		for i, v := range want.Volumes {
			if v.Problem != "" && !strings.Contains(v.Problem, unmade) {
				problems = append(problems, v.Problem)
			}
			if v.Spec.Builtin {
				// This is the source as it was written: reaching the kind does not prove that
				// the kind uses it.
				want.Volumes[i].Spec.Config = nil
			}
		}
		all = append(all, want)
		for _, v := range pod.Spec.Volumes {
			files, err := w.files(pod, v)
			if err != nil {
				problems = append(problems, fmt.Sprintf("pod %s/%s: volume %s: %v", pod.Namespace, pod.Name, v.Name, err))
			}
			all = append(all, files)
		}
		for _, name := range []string{"first", "app", "debug", "c"} {
			mounts, err := resolve.Container(pod, name, w, config(), resolve.Runtime{RecursiveReadOnly: true, MountOptions: true, UserNamespaces: true})
			if err != nil && !errors.Is(err, resolve.ErrNoContainer) {
				problems = append(problems, err.Error())
			}
			all = append(all, mounts)
		}
	}
	for _, claim := range each[*corev1.PersistentVolumeClaim](w) {
		if name := claim.Spec.StorageClassName; name != nil {
			class, _ := w.Get(resolve.Key{Kind: resolve.KindClass, Name: *name}).(*storagev1.StorageClass)
			asked, err := made.RequestOf(claim, class, translate.Kinds())
			if err != nil {
				problems = append(problems, err.Error())
			}
			all = append(all, asked)
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		problems = append(problems, err.Error())
	}
	return string(b), problems
}

// files returns the files of a volume that shows objects as files.
func (w *world) files(pod *corev1.Pod, v corev1.Volume) (content.Files, error) {
	r := content.Reader{Namespace: pod.Namespace, Objects: objects{w, pod}, Allocatable: config().Allocatable}
	r.Token = func(audience string, lifetime time.Duration) ([]byte, error) {
		return fmt.Appendf(nil, "%q %v", audience, lifetime), nil
	}
	r.Certificate = func(corev1.PodCertificateProjection) (key, chain []byte, err error) {
		return []byte("k"), []byte("c"), nil
	}
	switch {
	case v.ConfigMap != nil:
		return r.ConfigMap(*v.ConfigMap)
	case v.Secret != nil:
		return r.Secret(*v.Secret)
	case v.DownwardAPI != nil:
		return r.DownwardAPI(*v.DownwardAPI)
	case v.Projected != nil:
		return r.Projected(*v.Projected)
	}
	return nil, nil
}

// objects has the objects that a pod's files are made from.
type objects struct {
	w   *world
	pod *corev1.Pod
}

func (o objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	c, _ := o.w.Get(resolve.Key{Kind: resolve.KindConfigMap, Namespace: namespace, Name: name}).(*corev1.ConfigMap)
	return c, nil
}

func (o objects) Secret(namespace, name string) (*corev1.Secret, error) {
	s, _ := o.w.Get(resolve.Key{Kind: resolve.KindSecret, Namespace: namespace, Name: name}).(*corev1.Secret)
	return s, nil
}

func (o objects) TrustBundles() ([]*certificatesv1.ClusterTrustBundle, error) {
	return each[*certificatesv1.ClusterTrustBundle](o.w), nil
}

func (o objects) Pod() (*corev1.Pod, error) { return o.pod, nil }
