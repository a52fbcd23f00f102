package resolve_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// world has the objects of a test.
type world struct {
	objects map[resolve.Key]runtime.Object
	chosen  resolve.Binding
	owners  map[string]resolve.Owner
	unread  map[resolve.Key]string
	config  resolve.Config
}

var _ resolve.Objects = (*world)(nil)

func read(t testing.TB, file string) *world {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(b))
}

func parse(t testing.TB, text string) *world {
	t.Helper()
	w := &world{objects: map[resolve.Key]runtime.Object{}, config: resolve.Config{
		Layout: state.Layout{Root: "/r"}, NodeName: "node-1",
		Builtins: []state.DriverName{kind.EmptyDir, kind.ConfigMap},
	}}
	w.add(t, text)
	return w
}

func (w *world) add(t testing.TB, text string) {
	t.Helper()
	objects, err := manifest.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		key, err := resolve.KeyOf(o)
		if err != nil {
			t.Fatal(err)
		}
		w.objects[key] = o
	}
}

func (w *world) Get(k resolve.Key) runtime.Object {
	if o, ok := w.objects[k]; ok {
		return o
	}
	if k.Kind == resolve.KindTrustBundles {
		list := &certificatesv1.ClusterTrustBundleList{}
		for _, o := range w.objects {
			if b, ok := o.(*certificatesv1.ClusterTrustBundle); ok {
				list.Items = append(list.Items, *b)
			}
		}
		return list
	}
	return nil
}

func (w *world) Binding(resolve.Key) resolve.Binding { return w.chosen }

func (w *world) Unread(k resolve.Key) string { return w.unread[k] }

func (w *world) VolumesOf(namespace, claim string) []*corev1.PersistentVolume {
	var all []*corev1.PersistentVolume
	for _, o := range w.objects {
		if pv, ok := o.(*corev1.PersistentVolume); ok && pv.Spec.ClaimRef != nil &&
			pv.Spec.ClaimRef.Namespace == namespace && pv.Spec.ClaimRef.Name == claim {
			all = append(all, pv)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (w *world) Holders(volume string) (resolve.Owner, []*corev1.PersistentVolumeClaim) {
	var all []*corev1.PersistentVolumeClaim
	for _, o := range w.objects {
		if c, ok := o.(*corev1.PersistentVolumeClaim); ok && c.Spec.VolumeName == volume {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	return w.owners[volume], all
}

// The objects of testdata/base.yaml.

func (w *world) pod() *corev1.Pod {
	return w.objects[resolve.Key{Kind: "Pod", Namespace: "default", Name: "web"}].(*corev1.Pod)
}

func (w *world) claim() *corev1.PersistentVolumeClaim {
	return w.objects[resolve.Key{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data"}].(*corev1.PersistentVolumeClaim)
}

func (w *world) volume() *corev1.PersistentVolume {
	return w.objects[resolve.Key{Kind: "PersistentVolume", Name: "pv-1"}].(*corev1.PersistentVolume)
}

func (w *world) source() *corev1.CSIPersistentVolumeSource { return w.volume().Spec.CSI }

func (w *world) drop(kind, namespace, name string) {
	delete(w.objects, resolve.Key{Kind: kind, Namespace: namespace, Name: name})
}

// driver adds a CSIDriver object for the driver of testdata/base.yaml, as an API server returns it: with the default
// fsGroupPolicy if it has none.
func (w *world) driver(spec storagev1.CSIDriverSpec) {
	if spec.FSGroupPolicy == nil {
		spec.FSGroupPolicy = ptr(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	d := &storagev1.CSIDriver{Spec: spec}
	d.Name = "csi.example.com"
	w.objects[resolve.Key{Kind: "CSIDriver", Name: d.Name}] = d
}

func (w *world) resolve() state.PodWant { return resolve.Pod(w.pod(), w, w.config) }

// only returns the pod's only volume.
func (w *world) only(t *testing.T) state.VolumeWant {
	t.Helper()
	want := w.resolve()
	if len(want.Volumes) != 1 {
		t.Fatalf("got %d volumes, want 1: %+v", len(want.Volumes), want.Volumes)
	}
	return want.Volumes[0]
}

func ptr[T any](v T) *T { return &v }
