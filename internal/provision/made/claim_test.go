package made

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

func TestWhichClaimsTheControllerMakes(t *testing.T) {
	name := func(s string) *string { return &s }
	made, static := &storagev1.StorageClass{Provisioner: "d"}, &storagev1.StorageClass{Provisioner: resolve.NoProvisioner}
	for what, tc := range map[string]struct {
		spec  corev1.PersistentVolumeClaimSpec
		phase corev1.PersistentVolumeClaimPhase
		class *storagev1.StorageClass
		want  bool
	}{
		"a class that makes volumes":    {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: name("c")}, class: made, want: true},
		"the default class":             {class: made, want: true},
		"no class and no default":       {},
		"the class that is none":        {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: name("")}},
		"a class that is not there yet": {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: name("c")}, want: true},
		"a class without a provisioner": {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: name("c")}, class: static},
		"a volume of its own":           {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: name("c"), VolumeName: "pv"}, class: made},
		"bound by another controller":   {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: name("c")}, phase: corev1.ClaimBound, class: made},
	} {
		claim := &corev1.PersistentVolumeClaim{Spec: tc.spec, Status: corev1.PersistentVolumeClaimStatus{Phase: tc.phase}}
		if got := isOurs(claim, tc.class); got != tc.want {
			t.Errorf("a claim with %s: %v, want %v", what, got, tc.want)
		}
	}
}

// A claim that asks for content never gets an empty volume instead.
//
// Attacks: C13.
// Sidecars: SP-20, SP-26, SP-30.
func TestWhatAClaimIsToHold(t *testing.T) {
	elsewhere, snapshots, tapes := "elsewhere", "snapshot.storage.k8s.io", "tapes.example.com"
	here := &controller.DataSource{Claim: controller.Key{Namespace: "default", Name: "x"}}
	local := func(kind string) *corev1.TypedLocalObjectReference {
		return &corev1.TypedLocalObjectReference{Kind: kind, Name: "x"}
	}
	for what, tc := range map[string]struct {
		source *corev1.TypedLocalObjectReference
		ref    *corev1.TypedObjectReference
		handle string
		want   *controller.DataSource
		words  string // in the error about an unknown object
	}{
		"nothing":                  {},
		"a claim":                  {source: local("PersistentVolumeClaim"), want: &controller.DataSource{Claim: controller.Key{Namespace: "default", Name: "x"}}},
		"a claim, by reference":    {ref: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}, want: &controller.DataSource{Claim: controller.Key{Namespace: "default", Name: "x"}}},
		"a snapshot with a handle": {source: local("VolumeSnapshot"), handle: "snap-1", want: &controller.DataSource{SnapshotHandle: "snap-1"}},
		"a snapshot by its name":   {source: local("VolumeSnapshot"), want: &controller.DataSource{Snapshot: controller.Key{Namespace: "default", Name: "x"}}},
		"another namespace":        {ref: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x", Namespace: &elsewhere}, words: "elsewhere"},
		"a snapshot as Kubernetes has it": {
			source: &corev1.TypedLocalObjectReference{APIGroup: &snapshots, Kind: "VolumeSnapshot", Name: "x"},
			handle: "snap-1", want: &controller.DataSource{SnapshotHandle: "snap-1"},
		},
		"another group's VolumeSnapshot": {
			source: &corev1.TypedLocalObjectReference{APIGroup: &tapes, Kind: "VolumeSnapshot", Name: "x"},
			handle: "snap-1", words: "VolumeSnapshot.tapes.example.com x",
		},
		"another group's PersistentVolumeClaim": {
			ref:   &corev1.TypedObjectReference{APIGroup: &tapes, Kind: "PersistentVolumeClaim", Name: "x"},
			words: "PersistentVolumeClaim.tapes.example.com x",
		},
		"both fields, equal": {
			source: local("PersistentVolumeClaim"),
			ref:    &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}, want: here,
		},
		"both fields, of two names": {
			source: local("PersistentVolumeClaim"),
			ref:    &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "y"}, words: "PersistentVolumeClaim y",
		},
		"both fields, of two kinds": {
			source: local("PersistentVolumeClaim"), handle: "snap-1",
			ref: &corev1.TypedObjectReference{Kind: "VolumeSnapshot", Name: "x"}, words: "both equal",
		},
		"both fields, of two groups": {
			source: local("PersistentVolumeClaim"),
			ref:    &corev1.TypedObjectReference{APIGroup: &tapes, Kind: "PersistentVolumeClaim", Name: "x"}, words: "both equal",
		},
		"both fields, one of another namespace": {
			source: local("PersistentVolumeClaim"),
			ref:    &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x", Namespace: &elsewhere}, words: "elsewhere",
		},
		"a populator's object": {ref: &corev1.TypedObjectReference{Kind: "Tape", Name: "x"}, words: "Tape x"},
	} {
		claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{DataSource: tc.source, DataSourceRef: tc.ref}}
		claim.Namespace, claim.Annotations = "default", map[string]string{snapshotAnnotation: tc.handle}
		got := dataSource(claim)
		switch {
		case tc.words != "":
			if got == nil || !strings.Contains(got.Unknown, tc.words) || got.Claim != (controller.Key{}) || got.SnapshotHandle != "" || got.Snapshot != (controller.Key{}) {
				t.Errorf("%s: got %+v, want a word about %s", what, got, tc.words)
			}
		case (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want:
			t.Errorf("%s: got %+v, want %+v", what, got, tc.want)
		}
	}
}

// Only the claims of a namespace that the operator lists may name a snapshot by its handle.
func TestWhoMayNameAHandle(t *testing.T) {
	for _, tc := range []struct {
		allowed []string
		source  *controller.DataSource
		denied  bool
	}{
		{nil, &controller.DataSource{SnapshotHandle: "h"}, true},
		{[]string{"bank"}, &controller.DataSource{SnapshotHandle: "h"}, true},
		{[]string{"bank", "evil"}, &controller.DataSource{SnapshotHandle: "h"}, false},
		{[]string{"*"}, &controller.DataSource{SnapshotHandle: "h"}, false},
		{nil, &controller.DataSource{Snapshot: controller.Key{Namespace: "evil", Name: "s"}}, false},
		{nil, &controller.DataSource{Claim: controller.Key{Namespace: "evil", Name: "c"}}, false},
		{nil, nil, false},
	} {
		c := controller.Claim{Key: controller.Key{Namespace: "evil", Name: "thief"}, Source: tc.source}
		denyHandle(&c, tc.allowed)
		switch {
		case !tc.denied && c.Source != nil && c.Source.Denied != "", tc.denied && c.Source.Denied == "":
			t.Errorf("%v, %+v: denied is %v", tc.allowed, tc.source, !tc.denied)
		case tc.denied:
			for _, word := range []string{snapshotAnnotation, "found h", "VolumeSnapshotContent", "--snapshot-handle-allow=evil"} {
				if !strings.Contains(c.Source.Denied, word) {
					t.Errorf("%q says nothing about %s", c.Source.Denied, word)
				}
			}
		}
	}
}

// The operator chooses which in-tree plugins' classes are translated to their CSI drivers.
//
// Sidecars: SP-43.
func TestClassesOfOtherPluginsAreNotTranslated(t *testing.T) {
	for provisioner, want := range map[string]string{"kubernetes.io/aws-ebs": "kubernetes.io/aws-ebs", "kubernetes.io/cinder": "cinder.csi.openstack.org"} {
		got, err := RequestOf(&corev1.PersistentVolumeClaim{}, &storagev1.StorageClass{Provisioner: provisioner}, []string{"cinder"})
		if err != nil || string(got.Class.Provisioner) != want {
			t.Errorf("%s: got %+v, %v", provisioner, got, err)
		}
	}
}

// Sidecars: SP-34.
func TestTopologiesOfAClass(t *testing.T) {
	expression := func(key string, values ...string) corev1.TopologySelectorLabelRequirement {
		return corev1.TopologySelectorLabelRequirement{Key: key, Values: values}
	}
	class := &storagev1.StorageClass{AllowedTopologies: []corev1.TopologySelectorTerm{
		{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{expression("zone", "a", "b"), expression("zone", "b", "c"), expression("rack", "1")}},
		{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{expression("zone", "d")}},
	}}
	got, err := RequestOf(&corev1.PersistentVolumeClaim{}, class, nil)
	want := []map[string][]string{{"zone": {"b"}, "rack": {"1"}}, {"zone": {"d"}}}
	if diff := cmp.Diff(want, got.Class.Topologies); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// Sidecars: SP-16.
func TestFieldsOfAClaimThatAreNotFollowed(t *testing.T) {
	for _, tc := range []struct {
		spec corev1.PersistentVolumeClaimSpec
		want string
	}{
		{corev1.PersistentVolumeClaimSpec{}, ""},
		{corev1.PersistentVolumeClaimSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}, `spec.selector: found "a=b", want none`},
	} {
		got, err := RequestOf(&corev1.PersistentVolumeClaim{Spec: tc.spec}, &storagev1.StorageClass{}, nil)
		if err != nil || (tc.want == "") != (got.Refused == "") || !strings.HasPrefix(got.Refused, tc.want) {
			t.Errorf("%+v: got %q, %v, want %q", tc.spec, got.Refused, err, tc.want)
		}
	}
}

// An annotation of a class makes its driver receive the names of claims.
//
// Sidecars: SP-12.
func TestAClassTellsNames(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": false} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{resolve.ExtraCreateMetadata: value}}}
		if got, err := RequestOf(&corev1.PersistentVolumeClaim{}, class, nil); err != nil || got.Class.Metadata != want {
			t.Errorf("%q: %+v, %v", value, got.Class, err)
		}
	}
}

// A claim's request has the annotations that its class names in a secret's name, and no others: they may change.
func TestAnnotationsThatAClassNames(t *testing.T) {
	class := &storagev1.StorageClass{Parameters: map[string]string{"csi.storage.k8s.io/secret-name": "x-${pvc.annotations['acme.com/key']}"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"acme.com/key": "a", "key": "b"}}}
	got, err := RequestOf(claim, class, nil)
	if diff := cmp.Diff(map[string]string{"acme.com/key": "a"}, got.Annotations); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// A claim has the attributes of the class that it names, and waits for a class that does not exist yet.
//
// Sidecars: SP-23, SR-08.
func TestAttributesOfAClaim(t *testing.T) {
	gold, none := "gold", ""
	get := func(name string) *storagev1.VolumeAttributesClass {
		if name != gold {
			return nil
		}
		return &storagev1.VolumeAttributesClass{DriverName: "csi.example.com", Parameters: map[string]string{"iops": "5000"}}
	}
	absent := "absent"
	for _, tc := range []struct {
		name *string
		want controller.AttributesClass
	}{
		{nil, controller.AttributesClass{}},
		{&none, controller.AttributesClass{}},
		{&gold, controller.AttributesClass{
			Driver:     "csi.example.com",
			Attributes: controller.Attributes{Class: "gold", Parameters: map[string]string{"iops": "5000"}},
		}},
		{&absent, controller.AttributesClass{Attributes: controller.Attributes{Class: "absent"}}},
	} {
		got := attributes(&corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: tc.name}}, get)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// A PersistentVolume names the VolumeAttributesClass of its volume.
func TestAVolumeNamesItsAttributesClass(t *testing.T) {
	if pv := PersistentVolume(controller.Volume{AttributesClass: "gold"}); deref(pv.Spec.VolumeAttributesClassName) != "gold" {
		t.Errorf("%+v", pv.Spec)
	}
	if pv := PersistentVolume(controller.Volume{}); pv.Spec.VolumeAttributesClassName != nil {
		t.Errorf("%+v", pv.Spec)
	}
}
