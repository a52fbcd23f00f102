package source

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A set equals a map with the same keys, also while it grows beyond the size that is searched linearly and shrinks
// again; a small one has no map.
func TestFewIsASet(t *testing.T) {
	var s smallSet[int]
	want := map[int]bool{}
	check := func() {
		t.Helper()
		if got := slices.Sorted(s.all()); !slices.Equal(got, slices.Sorted(maps.Keys(want))) || s.empty() != (len(want) == 0) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	check()
	for k := range 3 * maxList {
		s.add(k)
		s.add(k)
		want[k] = true
		check()
		if len(want) <= maxList && s.many != nil {
			t.Fatalf("%d keys are in a map", len(want))
		}
		for range s.all() {
			break
		}
	}
	for k := range 3 * maxList {
		s.remove(k)
		s.remove(k)
		delete(want, k)
		check()
	}
	for range (*smallSet[int])(nil).all() {
		t.Error("nothing has a member")
	}
}

// BenchmarkLive measures what a catalog keeps for a bound claim and its volume, in addition to the two objects.
func BenchmarkLive(b *testing.B) {
	const n = 1000
	var before, after runtime.MemStats
	for b.Loop() {
		var u Update
		for i := range n {
			name := fmt.Sprint("v", i)
			u.Put = append(u.Put,
				&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
					ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: name},
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: name}},
				}},
				&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name}})
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := New(Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}}})
		if err := c.Apply("file", u); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(c)
		runtime.KeepAlive(u)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/claim")
}
