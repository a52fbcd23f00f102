package made

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func testGroupWorld() (groupInputs, *groupv1.VolumeGroupSnapshot) {
	claim := func(name, app string) groupClaim {
		return groupClaim{
			claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, Labels: map[string]string{"app": app},
			}},
			volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "v-" + name}},
			}},
		}
	}
	w := groupInputs{
		classes: []*groupv1.VolumeGroupSnapshotClass{{
			ObjectMeta: metav1.ObjectMeta{Name: "nightly", Annotations: map[string]string{resolve.DefaultGroupSnapshotClass: "true"}},
			Driver:     "d", DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, Parameters: map[string]string{"of": "nightly"},
		}},
		claims: []groupClaim{claim("data", "shop"), claim("log", "shop"), claim("mail", "post")},
	}
	return w, &groupv1.VolumeGroupSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", UID: "u", Annotations: map[string]string{resolve.FreezeAnnotation: "10s"}},
		Spec: groupv1.VolumeGroupSnapshotSpec{Source: groupv1.VolumeGroupSnapshotSource{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}},
		}},
	}
}

// ofContent makes the group name a content.
func ofContent(w *groupInputs, g *groupv1.VolumeGroupSnapshot) {
	g.Spec.Source = groupv1.VolumeGroupSnapshotSource{VolumeGroupSnapshotContentName: ptr("c")}
	w.claims = nil
	w.content = &groupv1.VolumeGroupSnapshotContent{Spec: groupv1.VolumeGroupSnapshotContentSpec{
		VolumeGroupSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "g"}, Driver: "d",
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		Source: groupv1.VolumeGroupSnapshotContentSource{GroupSnapshotHandles: &groupv1.GroupSnapshotHandles{
			VolumeGroupSnapshotHandle: "group-1", VolumeSnapshotHandles: []string{"s1", "s2"},
		}},
	}}
}

// A VolumeGroupSnapshot asks for snapshots of the volumes of all claims with its labels, by its class or its driver's
// default class. It reports what is missing or contradicts it.
//
// Sidecars: SS-09, SS-18, SS-19.
func TestWhatAGroupSnapshotAsksFor(t *testing.T) {
	key := func(name string) controller.Key { return controller.Key{Namespace: "default", Name: name} }
	base := controller.Group{
		Key: key("g"), UID: "u", Freeze: 10 * time.Second,
		Members: []controller.Member{
			{Claim: key("data"), Volume: "v-data", Mode: state.Filesystem}, {Claim: key("log"), Volume: "v-log", Mode: state.Filesystem},
		},
		Class: controller.SnapshotClass{Name: "nightly", Driver: "d", Retain: true, Parameters: map[string]string{"of": "nightly"}},
	}
	for what, c := range map[string]struct {
		change func(*groupInputs, *groupv1.VolumeGroupSnapshot)
		want   controller.Group
		words  string
	}{
		"labels, and the driver's default class": {want: base},
		"a class that tells names": {
			change: func(w *groupInputs, _ *groupv1.VolumeGroupSnapshot) {
				w.classes[0].Annotations[resolve.ExtraCreateMetadata] = "true"
			},
			want: func() controller.Group { g := base; g.Class.Metadata = true; return g }(),
		},
		"a class by name": {
			change: func(w *groupInputs, g *groupv1.VolumeGroupSnapshot) {
				w.classes[0].Annotations = nil
				g.Spec.VolumeGroupSnapshotClassName = ptr("nightly")
			},
			want: base,
		},
		"no class": {
			change: func(w *groupInputs, _ *groupv1.VolumeGroupSnapshot) { w.classes = nil },
			want:   func() controller.Group { g := base; g.Class = controller.SnapshotClass{Driver: "d"}; return g }(),
		},
		"a class that is not there": {
			change: func(_ *groupInputs, g *groupv1.VolumeGroupSnapshot) {
				g.Spec.VolumeGroupSnapshotClassName = ptr("weekly")
			},
			words: "spec.volumeGroupSnapshotClassName: found weekly",
		},
		"no claim": {
			change: func(_ *groupInputs, g *groupv1.VolumeGroupSnapshot) {
				g.Spec.Source.Selector.MatchLabels["app"] = "bank"
			},
			words: "spec.source.selector: found app=bank, and no claim of namespace default has these labels",
		},
		"a claim without a volume": {
			change: func(w *groupInputs, _ *groupv1.VolumeGroupSnapshot) { w.claims[1].volume = nil },
			words:  "claim default/log has no volume yet",
		},
		"a cluster's claim": {
			change: func(w *groupInputs, _ *groupv1.VolumeGroupSnapshot) { w.claims[1].remote = true },
			words:  "claim default/log is of the cluster",
		},
		"a volume of no CSI driver": {
			change: func(w *groupInputs, _ *groupv1.VolumeGroupSnapshot) { w.claims[1].volume.Spec.CSI = nil },
			words:  "claim default/log has volume pv-log, which is of no CSI driver",
		},
		"a content": {
			change: ofContent,
			want: controller.Group{
				Key: key("g"), UID: "u", Freeze: 10 * time.Second, Handle: "group-1", Handles: []string{"s1", "s2"},
				Class: controller.SnapshotClass{Name: "nightly", Driver: "d", Parameters: map[string]string{"of": "nightly"}},
			},
		},
		"a content that is not there": {
			change: func(w *groupInputs, g *groupv1.VolumeGroupSnapshot) { ofContent(w, g); w.content = nil },
			words:  "spec.source.volumeGroupSnapshotContentName: found c, but there is no such VolumeGroupSnapshotContent",
		},
		"another group's content": {
			change: func(w *groupInputs, g *groupv1.VolumeGroupSnapshot) {
				ofContent(w, g)
				w.content.Spec.VolumeGroupSnapshotRef.Namespace = "x"
			},
			words: "VolumeGroupSnapshotContent c: spec.volumeGroupSnapshotRef: found x/g, want this group snapshot",
		},
		"the content of one that was there before": {
			change: func(w *groupInputs, g *groupv1.VolumeGroupSnapshot) {
				ofContent(w, g)
				w.content.Spec.VolumeGroupSnapshotRef.UID = "before"
			},
			words: "VolumeGroupSnapshotContent c: spec.volumeGroupSnapshotRef",
		},
		"two drivers": {
			change: func(w *groupInputs, _ *groupv1.VolumeGroupSnapshot) { w.claims[1].volume.Spec.CSI.Driver = "e" },
			words:  "claim default/data is of driver d, and claim default/log of driver e",
		},
		"one volume twice": {
			change: func(w *groupInputs, _ *groupv1.VolumeGroupSnapshot) { w.claims[1].volume = w.claims[0].volume },
			words:  "claims default/data and default/log have one volume, v-data",
		},
		"a name that is too long": {
			change: func(_ *groupInputs, g *groupv1.VolumeGroupSnapshot) { g.Name = strings.Repeat("g", 250) },
			words:  "metadata.name: with claim default/data it gives its snapshot a name of 255 bytes",
		},
	} {
		w, g := testGroupWorld()
		if c.change != nil {
			c.change(&w, g)
		}
		unnamed := cmpopts.IgnoreUnexported(controller.Group{})
		switch got := w.request(g); {
		case c.words != "" && !strings.HasPrefix(got.Refused+got.Waits, c.words):
			t.Errorf("%s: %q, want %q", what, got.Refused+got.Waits, c.words)
		case (got.Waits != "") != (what == "a claim without a volume"):
			t.Errorf("%s: waits for %q", what, got.Waits)
		case c.words == "" && cmp.Diff(c.want, got, unnamed) != "":
			t.Errorf("%s: %s", what, cmp.Diff(c.want, got, unnamed))
		}
	}
}
