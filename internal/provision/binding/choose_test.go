package binding

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func claim(name, size string, edit ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	for _, f := range edit {
		f(c)
	}
	return c
}

func volume(name, size string, edit ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "handle of " + name}
	for _, f := range edit {
		f(pv)
	}
	return pv
}

func key(name string) source.Key {
	return source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: name}
}

func of(c *corev1.PersistentVolumeClaim) claimOf { return claimOf{PersistentVolumeClaim: c} }

func anywhere(*corev1.PersistentVolume) error { return nil }

// Each rule of fit by itself keeps a volume from a claim, and says so.
func TestUnfit(t *testing.T) {
	block, gold, now := corev1.PersistentVolumeBlock, "gold", metav1.Now()
	onTape := &metav1.LabelSelector{MatchLabels: map[string]string{"on": "tape"}}
	for _, tc := range []struct {
		claim func(*corev1.PersistentVolumeClaim)
		pv    func(*corev1.PersistentVolume)
		here  error
		want  string
	}{
		{},
		{pv: func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "fast" }, want: `its class is "fast"`},
		{pv: func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = &now }, want: "being deleted"},
		{pv: func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = &block }, want: "volumeMode is Block"},
		{pv: func(pv *corev1.PersistentVolume) { pv.Spec.Capacity = nil }, want: "it has 0"},
		{pv: func(pv *corev1.PersistentVolume) { pv.Spec.VolumeAttributesClassName = &gold }, want: `"gold"`},
		{claim: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}
		}, want: "ReadWriteOncePod"},
		{claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = onTape }, want: "on=tape"},
		{claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = onTape }, pv: func(pv *corev1.PersistentVolume) { pv.Labels = onTape.MatchLabels }},
		{here: errors.New("it is on another node"), want: "another node"},
	} {
		var claims []func(*corev1.PersistentVolumeClaim)
		var volumes []func(*corev1.PersistentVolume)
		if tc.claim != nil {
			claims = append(claims, tc.claim)
		}
		if tc.pv != nil {
			volumes = append(volumes, tc.pv)
		}
		here := func(*corev1.PersistentVolume) error { return tc.here }
		got := unfit(claim("c", "1Gi", claims...), "", volume("v", "1Gi", volumes...), here)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestSmallestThatFitsIsChosen(t *testing.T) {
	w := inputs{
		here:    anywhere,
		claims:  []claimOf{of(claim("a", "2Gi")), of(claim("b", "2Gi")), of(claim("c", "2Gi")), of(claim("d", "1Gi"))},
		volumes: []*corev1.PersistentVolume{volume("v1", "9Gi"), volume("v2", "1Gi"), volume("v3", "3Gi"), volume("v4", "3Gi")},
	}
	choices, notes := next(w)
	got := map[string]string{}
	for k, c := range choices {
		got[k.Name] = c.Volume
	}
	if diff := cmp.Diff(map[string]string{"a": "v3", "b": "v4", "c": "v1", "d": "v2"}, got); diff != "" || len(notes) > 0 {
		t.Errorf("%s\n%v", diff, notes)
	}
}

// A claim keeps its volume, whatever would fit better, and never gets the volume of another.
func TestChoiceHolds(t *testing.T) {
	v := volume("v", "5Gi")
	had := choice{Version: 1, Claim: "default/a", Volume: "v", Storage: resolve.Storage(v)}
	other := volume("v", "5Gi", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "other" })
	ofRef := volume("r", "1Gi", func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "x", Name: "y"}
	})
	released := had
	released.Released = true
	for name, tc := range map[string]struct {
		claims  []string
		volumes []*corev1.PersistentVolume
		before  choice
		bad     string // claim with an unreadable record
		named   string
		want    map[string]string
		note    string // of the first claim
	}{
		"beside one that fits better":      {claims: []string{"a"}, volumes: []*corev1.PersistentVolume{v, volume("w", "1Gi")}, before: had, want: map[string]string{"a": "v"}},
		"while the claim is not listed":    {claims: []string{"b"}, volumes: []*corev1.PersistentVolume{v}, before: had, want: map[string]string{"a": "v"}, note: "v: it is of claim default/a"},
		"while nothing is listed":          {before: had, want: map[string]string{"a": "v"}},
		"while the volume is not listed":   {claims: []string{"a"}, volumes: []*corev1.PersistentVolume{volume("w", "5Gi")}, before: had, want: map[string]string{"a": "v"}, note: "no longer listed"},
		"where the name has other storage": {claims: []string{"a"}, volumes: []*corev1.PersistentVolume{other}, before: had, want: map[string]string{"a": "v"}, note: "no longer listed with the storage"},
		"after the claim was deleted":      {claims: []string{"b"}, volumes: []*corev1.PersistentVolume{v}, before: released, want: map[string]string{"a": "v"}, note: "v: it is of claim default/a"},
		"not once that is not listed":      {claims: []string{"b"}, before: released, want: map[string]string{}, note: "there is no PersistentVolume without a class"},
		"and the claim comes back":         {claims: []string{"a"}, volumes: []*corev1.PersistentVolume{v}, before: released, want: map[string]string{"a": "v"}},
		"with a claimRef of another":       {claims: []string{"b"}, volumes: []*corev1.PersistentVolume{ofRef}, before: had, want: map[string]string{"a": "v"}, note: "r: it is of claim x/y"},
		"named by another claim":           {claims: []string{"b"}, volumes: []*corev1.PersistentVolume{volume("w", "5Gi")}, before: had, named: "w", want: map[string]string{"a": "v"}, note: "w: a claim names it"},
		"a record cannot be read":          {claims: []string{"b"}, volumes: []*corev1.PersistentVolume{volume("w", "5Gi")}, before: had, bad: "z", want: map[string]string{"a": "v"}, note: "default/z cannot be read"},
		"its own record cannot be read":    {claims: []string{"b"}, volumes: []*corev1.PersistentVolume{volume("w", "5Gi")}, before: had, bad: "b", want: map[string]string{"a": "v"}, note: "the record of its volume cannot be read"},
	} {
		w := inputs{here: anywhere, volumes: tc.volumes, choices: map[source.Key]choice{key("a"): tc.before}, named: map[string][]asker{tc.named: {{claim: "default/x"}}}, storage: resolve.Storage}
		for _, c := range tc.claims {
			w.claims = append(w.claims, of(claim(c, "1Gi")))
		}
		if tc.bad != "" {
			w.unreadable = map[source.Key]string{key(tc.bad): "torn"}
		}
		choices, notes := next(w)
		got := map[string]string{}
		for k, c := range choices {
			got[k.Name] = c.Volume
		}
		note := ""
		if len(tc.claims) > 0 {
			note = notes[key(tc.claims[0])].text
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || (note == "") != (tc.note == "") || !strings.Contains(note, tc.note) {
			t.Errorf("%s: %s\nnote %q, want %q", name, diff, note, tc.note)
		}
		if c, listed := choices[key("a")]; listed && c.Released != (tc.before.Released && len(tc.claims) > 0 && tc.claims[0] != "a") {
			t.Errorf("%s: released is %v", name, c.Released)
		}
	}
}

// A class that does not exist is called that, unless a volume of it is listed; a volume that fits is chosen all the same.
func TestAClassThatDoesNotExistIsNamed(t *testing.T) {
	c := claimOf{claim("a", "1Gi"), "fast", note{"StorageClass fast not found; there are: local", state.Cause{Code: state.NoClass, Of: "fast"}}}
	small := volume("small", "1Mi", func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "fast" })
	large := volume("large", "1Gi", func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "fast" })
	for _, tt := range []struct {
		volumes []*corev1.PersistentVolume
		want    note
	}{
		{nil, note{c.missing.text + " (a PersistentVolume of that class would do as well)", c.missing.cause}},
		{[]*corev1.PersistentVolume{small}, noVolume(`no PersistentVolume of class "fast" fits: small: it has 1Mi`)},
		{[]*corev1.PersistentVolume{small, large}, note{}},
	} {
		if _, notes := next(inputs{here: anywhere, claims: []claimOf{c}, volumes: tt.volumes}); notes[key("a")] != tt.want {
			t.Errorf("got %+v, want %+v", notes[key("a")], tt.want)
		}
	}
}

// If a claim that asks for a copy got an empty volume, its data would seem lost.
func TestDataSourceGetsNoVolumeThatIsThere(t *testing.T) {
	c := claim("a", "1Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "b"}
	})
	choices, notes := next(inputs{here: anywhere, claims: []claimOf{of(c)}, volumes: []*corev1.PersistentVolume{volume("v", "1Gi")}})
	if len(choices) > 0 || !strings.Contains(notes[key("a")].text, "dataSource") {
		t.Errorf("%v, %v", choices, notes)
	}
}

func TestNoteShowsAFewVolumes(t *testing.T) {
	var all []*corev1.PersistentVolume
	for i := range 9 {
		all = append(all, volume(fmt.Sprintf("v%d", i), "1Gi"))
	}
	_, notes := next(inputs{here: anywhere, claims: []claimOf{of(claim("a", "2Gi"))}, volumes: all})
	want := "no PersistentVolume without a class fits: v0: it has 1Gi; v1: it has 1Gi; v2: it has 1Gi; and 6 more"
	if got := notes[key("a")]; got != noVolume(want) {
		t.Errorf("got %q\nwant %q", notes[key("a")].text, want)
	}
}
