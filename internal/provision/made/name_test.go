package made

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// named returns a PersistentVolume that a source lists under the name of the volume of the claim with uid u1.
func named(handle, claim string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindVolume}, ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: handle},
		}},
	}
	if claim != "" {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: resolve.KindClaim, Namespace: "default", Name: claim}
	}
	return pv
}

// A source that has a PersistentVolume of the name before the claim's volume is begun keeps the name. It is the
// claim's volume if its claimRef says so, as a restored one; else the claim waits until it is gone.
func TestANameThatASourceHasFirstIsNotMade(t *testing.T) {
	for claim, words := range map[string]string{"a": "", "": "PersistentVolume pvc-u1 of source file", "other": "PersistentVolume pvc-u1 of source file"} {
		for _, late := range []bool{false, true} { // the objects come before the controller has its records, or after
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.end()
				w.catalog.Subscribe(w.p.Changed)
				if late {
					synctest.Wait()
				}
				w.c.DriverUp(controller.Driver{Name: "d", Conn: makes{}})
				err := w.catalog.Apply("file", source.Update{Put: []runtime.Object{
					testClass("d", nil), testClaim("a", "u1", "d"), named("theirs", claim),
				}})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				key := source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "a"}
				pv := w.catalog.VolumeOf(testClaim("a", "u1", "d"))
				if note := w.catalog.Binding(key).Note; (pv != nil) != (words == "") || !strings.Contains(note, words) || w.p.Provisions(key) {
					t.Errorf("claimRef %q, late %v: volume %v, note %q, begun %v", claim, late, pv, note, w.p.Provisions(key))
				}
				w.catalog.Delete("file", source.Key{Kind: resolve.KindVolume, Name: "pvc-u1"})
				synctest.Wait()
				if pv := w.catalog.VolumeOf(testClaim("a", "u1", "d")); pv == nil || pv.Spec.CSI.VolumeHandle != "h-pvc-u1" {
					t.Errorf("claimRef %q, late %v: the claim has %v once the name is free", claim, late, pv)
				}
			})
		}
	}
}

// A made volume follows the reclaim policy that the first source says of it, and no other's that differs.
func TestAMadeVolumeFollowsItsReclaimPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.catalog.Subscribe(w.p.Changed)
		w.c.DriverUp(controller.Driver{Name: "d", Conn: makes{}})
		w.put(testClass("d", nil))
		w.put(testClaim("a", "u1", "d"))
		says := func(provider string, pv *corev1.PersistentVolume, policy, want string) {
			t.Helper()
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(policy)
			if err := w.catalog.Put(provider, pv); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s, _ := w.c.Claim(controller.Key{Namespace: "default", Name: "a"})
			shown := w.catalog.Get(source.Key{Kind: resolve.KindVolume, Name: "pvc-u1"}).(*corev1.PersistentVolume)
			if string(s.Volume.ReclaimPolicy) != want || string(shown.Spec.PersistentVolumeReclaimPolicy) != want && policy != "Recycle" || shown.Spec.CSI.VolumeHandle != "h-pvc-u1" {
				t.Errorf("%s says %q: %+v, want %s", provider, policy, s.Volume, want)
			}
		}
		says("api", named("h-pvc-u1", "a"), "", "Delete")
		says("api", named("h-pvc-u1", "a"), "Retain", "Retain")
		says("api", named("h-pvc-u1", "a"), "Delete", "Delete")
		says("api", named("h-pvc-u1", "a"), "Recycle", "Retain") // as a cluster's old PersistentVolume
		says("api", named("theirs", "a"), "Delete", "Retain")
		says("file", named("h-pvc-u1", ""), "Delete", "Delete")
		says("api", named("h-pvc-u1", "a"), "Retain", "Delete") // the file takes precedence
		w.end()
		w = worldOf(t, w.journal)
		defer w.end()
		synctest.Wait()
		if s, _ := w.c.Claim(controller.Key{Namespace: "default", Name: "a"}); s.Volume == nil || s.Volume.ReclaimPolicy != controller.Delete {
			t.Errorf("after a restart: %+v", s)
		}
	})
}

// A volume whose class names no file system has its driver's.
//
// Sidecars: SA-16, SP-08.
func TestTheFileSystemOfADriversVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		w.p.FSTypes = map[state.DriverName]string{"d": "ext4"}
		w.catalog.Subscribe(w.p.Changed)
		w.c.DriverUp(controller.Driver{Name: "d", Conn: makes{}})
		w.put(testClass("d", nil))
		w.put(testClaim("a", "u1", "d"))
		synctest.Wait()
		if pv := w.catalog.VolumeOf(testClaim("a", "u1", "d")); pv == nil || pv.Spec.CSI.FSType != "ext4" {
			t.Errorf("volume %+v", pv)
		}
	})
}
