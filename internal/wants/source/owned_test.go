package source

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Which object each provider's pods see under a key that "named" owns, in every combination of providers that have one,
// and in each order of the ownership and the objects.
func TestAnOwnedKey(t *testing.T) {
	key := Key{Kind: resolve.KindClaim, Namespace: "default", Name: "db"}
	providers := []string{"named", "file", "api", Kube}
	for have := range 1 << len(providers) {
		for _, first := range []bool{true, false} {
			c := New(Config{Sink: deaf{}, Remote: Kube})
			has := map[string]bool{}
			own := func() { c.Own(Ownership{Provider: "named", Whose: "the volume db"}, []Key{key}, false) }
			if first {
				own()
			}
			for i, p := range providers {
				if has[p] = have&(1<<i) != 0; has[p] {
					if err := c.Put(p, claimOf(p)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !first {
				own()
			}
			local := has["file"] || has["api"]
			for _, asks := range providers {
				want := ""
				switch {
				case asks == "named" && has["named"]:
					want = "named" // never another's
				case asks == "named":
				case has[Kube]:
					want = Kube // the node cannot refuse it
				case local: // neither another author's object nor, in its place, the volume
				case has["named"]:
					want = "named" // a pod that shares the volume
				}
				v := view{catalog: c, provider: asks, seen: map[Key]bool{}}
				got := ""
				if o, ok := v.Get(key).(*corev1.PersistentVolumeClaim); ok {
					got = o.Labels["of"]
				}
				if got != want {
					t.Errorf("%v, owned first %v: a pod of %s sees %q, want %q", has, first, asks, got, want)
				}
				why := v.Unread(key)
				if refused := asks != "named" && local && !has[Kube]; refused != strings.Contains(why, "belongs to the volume db") {
					t.Errorf("%v: a pod of %s is told %q", has, asks, why)
				}
			}
			wantOf := map[bool]string{true: Kube, false: "named"}[has[Kube]]
			if !has[wantOf] {
				wantOf = ""
			}
			if got := c.Provider(key); got != wantOf {
				t.Errorf("%v: the object of %q is in effect, want %q", has, got, wantOf)
			}
			if n := len(c.Claims()); n != map[bool]int{true: 1}[wantOf != ""] {
				t.Errorf("%v: %d claims are listed", has, n)
			}
			lines := map[string]string{}
			for _, p := range c.Problems() {
				lines[p.Provider] = p.Text
			}
			for _, p := range []string{"file", "api"} {
				if has[p] != strings.Contains(lines[p], "the volume db") {
					t.Errorf("%v: the problem of %s is %q", has, p, lines[p])
				}
			}
		}
	}
}

func claimOf(provider string) runtime.Object {
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", Labels: map[string]string{"of": provider}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "of-" + provider,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// A key that is to be free is not taken from another provider, except from a cluster, and nothing changes then. The
// ownership ends with Disown.
func TestAKeyThatIsNotFreeIsNotOwned(t *testing.T) {
	free, taken := Key{Kind: resolve.KindPod, Namespace: "default", Name: "docker.db"}, Key{Kind: resolve.KindClaim, Namespace: "default", Name: "db"}
	for _, p := range []string{"file", "api", Kube, "named"} {
		c := New(Config{Sink: deaf{}, Remote: Kube})
		if err := c.Put(p, claimOf(p)); err != nil {
			t.Fatal(err)
		}
		key, by := c.Own(Ownership{Provider: "named", Whose: "x"}, []Key{free, taken}, true)
		refused := p == "file" || p == "api"
		if (by != "") != refused || refused && (key != taken || by != p) || len(c.owned) != map[bool]int{false: 2}[refused] {
			t.Errorf("%s: %v by %q, %d owned", p, key, by, len(c.owned))
		}
		c.Disown([]Key{free, taken})
		if got := c.Provider(taken); got != p || len(c.owned) != 0 {
			t.Errorf("%s: afterwards the object of %q is in effect", p, got)
		}
	}
}

// A pod that uses an owned claim keeps what it has while another's object of that name is there, and is resolved again
// when it comes and goes, although the effective object stays.
func TestPodsFollowTheObjectsUnderAnOwnedKey(t *testing.T) {
	s := &wants{}
	c := New(Config{Sink: s})
	c.Own(Ownership{Provider: "named", Whose: "the volume db"}, []Key{{Kind: resolve.KindClaim, Namespace: "default", Name: "db"}}, true)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindPod}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db"},
			}}},
			Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		},
	}
	for _, step := range []struct {
		do   func() error
		says string
	}{
		{func() error { return c.Put("named", claimOf("named")) }, ""},
		{func() error { return c.Put("api", pod) }, "of-named"},
		{func() error { return c.Put("file", claimOf("file")) }, "belongs to the volume db"},
		{func() error {
			c.Delete("file", Key{Kind: resolve.KindClaim, Namespace: "default", Name: "db"})
			return nil
		}, "of-named"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if step.says != "" && !strings.Contains(s.last, step.says) {
			t.Errorf("the pod wants %s, want %q", s.last, step.says)
		}
	}
}

// wants is a Sink that keeps the last wants.
type wants struct {
	deaf
	last string
}

func (w *wants) SetPod(p state.PodWant) { w.last = fmt.Sprintf("%+v", p) }
