package source

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func volume(handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindVolume}, ObjectMeta: metav1.ObjectMeta{Name: "pvc-u"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: handle},
		}},
	}
}

// Which volume is in effect, by every combination of what the provider of made volumes has told, and of the sources
// that have the same volume or another.
func TestWhichVolumeOfANameIsInEffect(t *testing.T) {
	const same, other = "made", "other"
	states := map[string]*Hold{
		"not known yet": nil, "the name is free": {}, "being made": {Claim: "bank/data"}, "made": {Claim: "bank/data", Volume: volume(same)},
		"yields, being made": {Claim: "bank/data", Yields: true}, "yields": {Claim: "bank/data", Volume: volume(same), Yields: true},
	}
	for what, hold := range states {
		for sources := range 1 << 6 { // a bit each: file same, file other, api same, api other, kube, the controller
			has := func(bit int) bool { return sources>>bit&1 == 1 }
			if has(0) && has(1) || has(2) && has(3) {
				continue
			}
			c := New(Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: deaf{}, Made: "controller", Remote: Kube})
			if hold != nil {
				names := map[string]Hold{}
				if hold.Claim != "" {
					names["pvc-u"] = *hold
				}
				c.Hold(names)
			}
			for bit, p := range []struct{ provider, handle string }{{"file", same}, {"file", other}, {"api", same}, {"api", other}, {Kube, "cluster"}, {"controller", same}} {
				if has(bit) {
					if err := c.Put(p.provider, volume(p.handle)); err != nil {
						t.Fatal(err)
					}
				}
			}
			differs := has(1) || has(3)
			listed := has(0) || has(1) || has(2) || has(3)
			stands := hold != nil && listed && (hold.Claim == "" || hold.Yields && (differs || hold.Volume == nil))
			want := ""
			switch {
			case stands && (has(0) || has(1)):
				want = "file"
			case stands:
				want = "api"
			case has(5):
				want = "controller"
			case has(4):
				want = Kube
			}
			key := Key{Kind: resolve.KindVolume, Name: "pvc-u"}
			got := c.Get(key)
			if provider := c.Provider(key); provider != want || (got == nil) != (want == "") || len(c.Volumes()) > 1 || (len(c.Volumes()) == 1) != (want != "") {
				t.Errorf("%s, %06b: %q is in effect (%v), want %q", what, sources, provider, got, want)
			}
			problems := slices.ContainsFunc(c.Problems(), func(p Problem) bool { return strings.Contains(p.Text, "want") })
			if held := hold != nil && hold.Claim != ""; problems != (held && (differs || listed && hold.Volume == nil)) {
				t.Errorf("%s, %06b: problems %v", what, sources, c.Problems())
			}
		}
	}
}

// What a hold changes is announced and resolved, in whatever order it comes.
func TestAHoldIsAnnounced(t *testing.T) {
	c := New(Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: deaf{}, Made: "controller"})
	var heard []Key
	c.Subscribe(func(k Key) { heard = append(heard, k) })
	claimed := volume("other")
	claimed.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "bank", Name: "data"}
	claim := &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim}, ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "data"}}
	of := func() string {
		pv := c.VolumeOf(claim)
		heard = nil
		if pv == nil {
			return ""
		}
		return pv.Spec.CSI.VolumeHandle
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { _ = c.Apply("api", Update{Put: []runtime.Object{claimed}}) }, ""},
		{func() { c.Hold(nil) }, "other"},
		{func() { c.Hold(map[string]Hold{"pvc-u": {Claim: "bank/data"}}) }, ""},
		{func() { c.Hold(map[string]Hold{}) }, "other"},
	} {
		step.do()
		if !slices.Contains(heard, Key{Kind: resolve.KindVolume, Name: "pvc-u"}) && step.want != "" {
			t.Errorf("heard %v", heard)
		}
		if got := of(); got != step.want {
			t.Errorf("claim bank/data has %q, want %q", got, step.want)
		}
	}
}

// The door: a held name is refused to another volume, and not to the same one, nor to one that a source has.
func TestWhatAHoldRefuses(t *testing.T) {
	c := New(Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: deaf{}, Made: "controller"})
	if why := c.CheckHold(volume("other")); why != "" {
		t.Error(why)
	}
	c.Hold(map[string]Hold{"pvc-u": {Claim: "bank/data", Volume: volume("made"), Yields: true}})
	retained := volume("made")
	retained.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	for what, pv := range map[string]*corev1.PersistentVolume{"the same": volume("made"), "a reclaim policy": retained} {
		if why := c.CheckHold(pv); why != "" {
			t.Errorf("%s: %s", what, why)
		}
	}
	want := "spec.csi.volumeHandle: found other, want made, since csi-volmgr made the volume of this name, for claim bank/data"
	if why := c.CheckHold(volume("other")); !strings.HasPrefix(why, want) {
		t.Error(why)
	}
	if err := c.Put("api", volume("other")); err != nil {
		t.Fatal(err)
	}
	if why := c.CheckHold(volume("other")); why != "" { // it stands, and people apply it daily
		t.Error(why)
	}
	if why := c.CheckHold(volume("third")); why == "" {
		t.Error("a third volume is not refused")
	}
	if got := fmt.Sprint(c.Follows(retained), c.Follows(volume("x"))); got != "true true" {
		t.Error(got)
	}
}
