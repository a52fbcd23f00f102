package resolve

import (
	"strings"
	"testing"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Each unsupported field of the snapshot kinds is refused by name.
func TestSnapshotsAreChecked(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "s"}
	snapshot := func(s snapshotv1.VolumeSnapshotSpec) runtime.Object {
		return &snapshotv1.VolumeSnapshot{ObjectMeta: meta, Spec: s}
	}
	content := func(change func(*snapshotv1.VolumeSnapshotContentSpec)) runtime.Object {
		handle, mode := "h", corev1.PersistentVolumeBlock
		c := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "s"}, Driver: "d", DeletionPolicy: "Delete",
			Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &handle}, SourceVolumeMode: &mode,
		}}
		change(&c.Spec)
		return c
	}
	claim, name, bad, long := "data", "c", "No_Name", strings.Repeat("x", 1025)
	mode := corev1.PersistentVolumeMode("Tape")
	frozen := func(text string) runtime.Object {
		return &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", Annotations: map[string]string{FreezeAnnotation: text}},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
		}
	}
	shop := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}
	unknown := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
	group := func(source groupv1.VolumeGroupSnapshotSource, class *string, freeze string) runtime.Object {
		g := &groupv1.VolumeGroupSnapshot{ObjectMeta: meta, Spec: groupv1.VolumeGroupSnapshotSpec{Source: source, VolumeGroupSnapshotClassName: class}}
		if freeze != "" {
			g.Annotations = map[string]string{FreezeAnnotation: freeze}
		}
		return g
	}
	groupContent := func(change func(*groupv1.VolumeGroupSnapshotContentSpec)) runtime.Object {
		c := &groupv1.VolumeGroupSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: groupv1.VolumeGroupSnapshotContentSpec{
			VolumeGroupSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "s"}, Driver: "d", DeletionPolicy: "Delete",
			Source: groupv1.VolumeGroupSnapshotContentSource{GroupSnapshotHandles: &groupv1.GroupSnapshotHandles{
				VolumeGroupSnapshotHandle: "g", VolumeSnapshotHandles: []string{"s1", "s2"},
			}},
		}}
		change(&c.Spec)
		return c
	}
	for _, c := range []struct {
		obj   runtime.Object
		field string // "" for no fault
	}{
		{snapshot(snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}}), ""},
		{snapshot(snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: &name}}), ""},
		{frozen("10s"), ""},
		{frozen("61s"), "metadata.annotations[csi-volmgr.dev/freeze]"},
		{frozen("-1s"), "metadata.annotations[csi-volmgr.dev/freeze]"},
		{frozen("yes"), "metadata.annotations[csi-volmgr.dev/freeze]"},
		{snapshot(snapshotv1.VolumeSnapshotSpec{}), "spec.source: found neither"},
		{snapshot(snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim, VolumeSnapshotContentName: &name}}), "spec.source: found both"},
		{snapshot(snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &bad}}), "spec.source.persistentVolumeClaimName"},
		{snapshot(snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: &bad}}), "spec.source.volumeSnapshotContentName"},
		{snapshot(snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}, VolumeSnapshotClassName: &bad}), "spec.volumeSnapshotClassName"},
		{group(groupv1.VolumeGroupSnapshotSource{Selector: shop}, nil, ""), ""},
		{group(groupv1.VolumeGroupSnapshotSource{Selector: shop}, &name, "10s"), ""},
		{group(groupv1.VolumeGroupSnapshotSource{}, nil, ""), "spec.source: found neither"},
		{group(groupv1.VolumeGroupSnapshotSource{VolumeGroupSnapshotContentName: &name}, nil, ""), ""},
		{group(groupv1.VolumeGroupSnapshotSource{VolumeGroupSnapshotContentName: &bad}, nil, ""), "spec.source.volumeGroupSnapshotContentName"},
		{group(groupv1.VolumeGroupSnapshotSource{Selector: shop, VolumeGroupSnapshotContentName: &name}, nil, ""), "spec.source: found both"},
		{groupContent(func(*groupv1.VolumeGroupSnapshotContentSpec) {}), ""},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.Driver = "" }), "spec.driver"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.DeletionPolicy = "" }), "spec.deletionPolicy"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.VolumeGroupSnapshotRef.Name = "" }), "spec.volumeGroupSnapshotRef.name"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.VolumeGroupSnapshotRef.Namespace = "" }), "spec.volumeGroupSnapshotRef.namespace"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.Source.VolumeHandles = []string{"v"} }), "spec.source.volumeHandles"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.Source.GroupSnapshotHandles = nil }), "spec.source.groupSnapshotHandles.volumeGroupSnapshotHandle"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) {
			s.Source.GroupSnapshotHandles.VolumeGroupSnapshotHandle = long
		}), "spec.source.groupSnapshotHandles.volumeGroupSnapshotHandle"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) {
			s.Source.GroupSnapshotHandles.VolumeSnapshotHandles = nil
		}), "spec.source.groupSnapshotHandles.volumeSnapshotHandles: found none"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) {
			s.Source.GroupSnapshotHandles.VolumeSnapshotHandles[1] = "s1"
		}), "spec.source.groupSnapshotHandles.volumeSnapshotHandles[1]"},
		{groupContent(func(s *groupv1.VolumeGroupSnapshotContentSpec) {
			s.Source.GroupSnapshotHandles.VolumeSnapshotHandles[1] = ""
		}), "spec.source.groupSnapshotHandles.volumeSnapshotHandles[1]"},
		{group(groupv1.VolumeGroupSnapshotSource{Selector: unknown}, nil, ""), "spec.source.selector"},
		{group(groupv1.VolumeGroupSnapshotSource{Selector: shop}, &bad, ""), "spec.volumeGroupSnapshotClassName"},
		{group(groupv1.VolumeGroupSnapshotSource{Selector: shop}, nil, "2m"), "metadata.annotations[csi-volmgr.dev/freeze]"},
		{&groupv1.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "k"}, Driver: "d", DeletionPolicy: "Retain"}, ""},
		{&groupv1.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "k"}, Driver: "d"}, "deletionPolicy"},
		{&groupv1.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "k"}, DeletionPolicy: "Retain"}, "driver"},
		{&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "k"}, Driver: "d", DeletionPolicy: "Retain"}, ""},
		{&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "k"}, Driver: "d"}, "deletionPolicy"},
		{&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "k"}, DeletionPolicy: "Retain"}, "driver"},
		{content(func(*snapshotv1.VolumeSnapshotContentSpec) {}), ""},
		{content(func(s *snapshotv1.VolumeSnapshotContentSpec) { s.Source.VolumeHandle = &claim }), "spec.source.volumeHandle"},
		{content(func(s *snapshotv1.VolumeSnapshotContentSpec) { s.Source.SnapshotHandle = nil }), "spec.source.snapshotHandle"},
		{content(func(s *snapshotv1.VolumeSnapshotContentSpec) { s.Source.SnapshotHandle = &long }), "spec.source.snapshotHandle"},
		{content(func(s *snapshotv1.VolumeSnapshotContentSpec) { s.DeletionPolicy = "Recycle" }), "spec.deletionPolicy: found Recycle"},
		{content(func(s *snapshotv1.VolumeSnapshotContentSpec) { s.Driver = "" }), "spec.driver"},
		{content(func(s *snapshotv1.VolumeSnapshotContentSpec) { s.VolumeSnapshotRef.Name = "" }), "spec.volumeSnapshotRef.name"},
		{content(func(s *snapshotv1.VolumeSnapshotContentSpec) { s.VolumeSnapshotRef.Namespace = "" }), "spec.volumeSnapshotRef.namespace"},
		{content(func(s *snapshotv1.VolumeSnapshotContentSpec) { s.SourceVolumeMode = &mode }), "spec.sourceVolumeMode"},
	} {
		faults := Check(c.obj)
		if c.field == "" && len(faults) > 0 || c.field != "" && (len(faults) != 1 || !strings.HasPrefix(faults[0].String(), c.field)) {
			t.Errorf("%T: %v, want %q", c.obj, faults, c.field)
		}
	}
}

// A snapshot has the content of its source, so the source of an existing one may not change.
func TestTheSourceOfASnapshotDoesNotChange(t *testing.T) {
	of := func(claim, class string) *snapshotv1.VolumeSnapshot {
		return &snapshotv1.VolumeSnapshot{Spec: snapshotv1.VolumeSnapshotSpec{
			Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}, VolumeSnapshotClassName: &class,
		}}
	}
	if faults := CheckChange(of("a", "x"), of("a", "y")); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	if faults := CheckChange(of("a", "x"), of("b", "x")); len(faults) != 1 || faults[0].Field != "spec.source" {
		t.Errorf("%v", faults)
	}
	group := func(app, class string) *groupv1.VolumeGroupSnapshot {
		return &groupv1.VolumeGroupSnapshot{Spec: groupv1.VolumeGroupSnapshotSpec{
			Source:                       groupv1.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			VolumeGroupSnapshotClassName: &class,
		}}
	}
	if faults := CheckChange(group("a", "x"), group("a", "y")); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	if faults := CheckChange(group("a", "x"), group("b", "x")); len(faults) != 1 || faults[0].Field != "spec.source" {
		t.Errorf("%v", faults)
	}
}
