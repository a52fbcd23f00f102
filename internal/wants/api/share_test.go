package api_test

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// volumes returns a bound claim and its volume for each size, as a client applies them.
func volumes(sizes ...string) string {
	var b strings.Builder
	for i, size := range sizes {
		fmt.Fprintf(&b, `---
{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv%[1]d"},"spec":{"capacity":{"storage":%[2]q},"accessModes":["ReadWriteOnce"],"csi":{"driver":"d","volumeHandle":"h%[1]d"},"claimRef":{"namespace":"default","name":"c%[1]d"}}}
---
{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c%[1]d"},"spec":{"accessModes":["ReadWriteOnce"],"volumeName":"pv%[1]d","resources":{"requests":{"storage":%[2]q}}},"status":{"capacity":{"storage":%[2]q}}}
`, i, size)
	}
	return strings.TrimPrefix(b.String(), "---\n")
}

// Equal resource lists share one map, whether their objects were applied or loaded, and each object has its own
// values.
func TestListsThatSayTheSameAreOne(t *testing.T) {
	kv := journal.NewMemory()
	p, applied := start(t, kv, "")
	sizes := []string{"1Gi", "1Gi", "2Gi"}
	for n := range sizes { // one request each
		apply(t, p, volumes(sizes[:n+1]...))
	}
	_, read := start(t, kv, "")
	for _, c := range []*catalog{applied, read} {
		same := map[string]uintptr{}
		for i, size := range sizes {
			pv := c.objects[key("PersistentVolume", fmt.Sprint("pv", i))].(*corev1.PersistentVolume)
			claim := c.objects[key("PersistentVolumeClaim", fmt.Sprint("c", i))].(*corev1.PersistentVolumeClaim)
			for _, l := range []corev1.ResourceList{pv.Spec.Capacity, claim.Spec.Resources.Requests, claim.Status.Capacity} {
				if got := l[corev1.ResourceStorage]; len(l) != 1 || got.Cmp(resource.MustParse(size)) != 0 {
					t.Errorf("%s: found %v", size, l)
				}
				at := reflect.ValueOf(l).Pointer()
				if is, ok := same[size]; ok && is != at {
					t.Errorf("%s: there are two lists", size)
				}
				same[size] = at
			}
		}
	}
}

// BenchmarkLive measures the memory of a bound claim and its volume, with their text.
func BenchmarkLive(b *testing.B) {
	const n = 1000
	text := []byte(volumes(slices.Repeat([]string{"1Gi"}, n)...))
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		p := api.New(api.Config{KV: journal.NewMemory(), Catalog: &catalog{objects: map[source.Key]k8sruntime.Object{}}})
		objects, err := manifest.Decode("x", text)
		if err == nil {
			_, err = p.Apply(b.Context(), objects)
		}
		if err != nil {
			b.Fatal(err)
		}
		objects = nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(p)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/claim")
}
