package made

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func ptr[T any](v T) *T { return &v }

func testWorld() (snapshotInputs, *snapshotv1.VolumeSnapshot) {
	class := func(name, driver string, policy snapshotv1.DeletionPolicy, byDefault string) *snapshotv1.VolumeSnapshotClass {
		return &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{resolve.DefaultSnapshotClass: byDefault}},
			Driver:     driver, DeletionPolicy: policy, Parameters: map[string]string{"of": name},
		}
	}
	w := snapshotInputs{
		classes: []*snapshotv1.VolumeSnapshotClass{
			class("kept", "d", snapshotv1.VolumeSnapshotContentRetain, "false"),
			class("nightly", "d", snapshotv1.VolumeSnapshotContentDelete, "true"),
			class("other", "e", snapshotv1.VolumeSnapshotContentDelete, "true"),
		},
		claim: &corev1.PersistentVolumeClaim{},
		volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "v"}},
		}},
	}
	s := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", UID: "u"},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr("data")}},
	}
	return w, s
}

// byContent makes the snapshot name a content.
func byContent(w *snapshotInputs, s *snapshotv1.VolumeSnapshot) {
	s.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr("c")}
	w.claim, w.volume = nil, nil
	w.content = &snapshotv1.VolumeSnapshotContent{Spec: snapshotv1.VolumeSnapshotContentSpec{
		VolumeSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "s"}, Driver: "d",
		DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, SourceVolumeMode: ptr(corev1.PersistentVolumeBlock),
		Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: ptr("h")},
	}}
}

// A VolumeSnapshot asks for a snapshot of its claim's volume by its class, or for the one that its content names. It
// reports what is missing or contradicts it.
//
// Sidecars: SP-27, SP-29, SS-08, SS-09, SS-11, SS-30.
func TestWhatASnapshotAsksFor(t *testing.T) {
	nightly := controller.SnapshotClass{Name: "nightly", Driver: "d", Parameters: map[string]string{"of": "nightly"}}
	base := controller.Snapshot{
		Key: controller.Key{Namespace: "default", Name: "s"}, UID: "u", Claim: controller.Key{Namespace: "default", Name: "data"},
		Volume: "v", Mode: state.Filesystem, Class: nightly,
	}
	named := controller.Snapshot{
		Key: base.Key, UID: "u", Handle: "h", Mode: state.Block,
		Class: controller.SnapshotClass{Name: "nightly", Driver: "d", Retain: true, Parameters: nightly.Parameters},
	}
	for what, c := range map[string]struct {
		change func(*snapshotInputs, *snapshotv1.VolumeSnapshot)
		want   controller.Snapshot
		words  string
	}{
		"a claim, and its driver's default class": {want: base},
		"a class by name": {
			change: func(_ *snapshotInputs, s *snapshotv1.VolumeSnapshot) { s.Spec.VolumeSnapshotClassName = ptr("kept") },
			want: func() controller.Snapshot {
				s := base
				s.Class = controller.SnapshotClass{Name: "kept", Driver: "d", Retain: true, Parameters: map[string]string{"of": "kept"}}
				return s
			}(),
		},
		"a class that tells names": {
			change: func(w *snapshotInputs, _ *snapshotv1.VolumeSnapshot) {
				w.classes[1].Annotations[resolve.ExtraCreateMetadata] = "true"
			},
			want: func() controller.Snapshot { s := base; s.Class.Metadata = true; return s }(),
		},
		"a freeze": {
			change: func(_ *snapshotInputs, s *snapshotv1.VolumeSnapshot) {
				s.Annotations = map[string]string{resolve.FreezeAnnotation: "10s"}
			},
			want: func() controller.Snapshot { s := base; s.Freeze = 10 * time.Second; return s }(),
		},
		"no class": {
			change: func(w *snapshotInputs, _ *snapshotv1.VolumeSnapshot) { w.classes = w.classes[2:] },
			want: func() controller.Snapshot {
				s := base
				s.Class = controller.SnapshotClass{Driver: "d"}
				return s
			}(),
		},
		"two default classes": {
			change: func(w *snapshotInputs, _ *snapshotv1.VolumeSnapshot) {
				w.classes[0].Annotations[resolve.DefaultSnapshotClass] = "true"
			}, words: "kept, nightly",
		},
		"another driver's class": {
			change: func(_ *snapshotInputs, s *snapshotv1.VolumeSnapshot) { s.Spec.VolumeSnapshotClassName = ptr("other") },
			words:  "class other is of driver e, and its volume of driver d",
		},
		"a class that is not there": {
			change: func(_ *snapshotInputs, s *snapshotv1.VolumeSnapshot) { s.Spec.VolumeSnapshotClassName = ptr("weekly") },
			words:  "spec.volumeSnapshotClassName: found weekly",
		},
		"no claim": {
			change: func(w *snapshotInputs, _ *snapshotv1.VolumeSnapshot) { w.claim = nil },
			words:  "spec.source.persistentVolumeClaimName: found data",
		},
		"a cluster's claim": {
			change: func(w *snapshotInputs, _ *snapshotv1.VolumeSnapshot) { w.remote = true },
			words:  "external-snapshotter",
		},
		"no volume yet": {
			change: func(w *snapshotInputs, _ *snapshotv1.VolumeSnapshot) { w.volume = nil },
			words:  "has no volume yet",
		},
		"a built-in kind": {
			change: func(w *snapshotInputs, _ *snapshotv1.VolumeSnapshot) { w.volume.Spec.CSI = nil },
			words:  "of no CSI driver",
		},
		"a raw block volume": {
			change: func(w *snapshotInputs, _ *snapshotv1.VolumeSnapshot) {
				w.volume.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
			},
			want: func() controller.Snapshot { s := base; s.Mode = state.Block; return s }(),
		},
		"a content": {change: byContent, want: named},
		"a content whose mode may change": {
			change: func(w *snapshotInputs, s *snapshotv1.VolumeSnapshot) {
				byContent(w, s)
				w.content.Annotations = map[string]string{resolve.AllowModeChange: "true"}
			},
			want: func() controller.Snapshot { s := named; s.Mode = ""; return s }(),
		},
		"no content": {
			change: func(w *snapshotInputs, s *snapshotv1.VolumeSnapshot) { byContent(w, s); w.content = nil },
			words:  "spec.source.volumeSnapshotContentName: found c",
		},
		"another snapshot's content": {
			change: func(w *snapshotInputs, s *snapshotv1.VolumeSnapshot) {
				byContent(w, s)
				w.content.Spec.VolumeSnapshotRef.Name = "x"
			}, words: "found default/x, want this snapshot",
		},
		"another namespace's content": {
			change: func(w *snapshotInputs, s *snapshotv1.VolumeSnapshot) {
				byContent(w, s)
				w.content.Spec.VolumeSnapshotRef.Namespace = "x"
			}, words: "found x/s, want this snapshot",
		},
		"the content of one that was there before": {
			change: func(w *snapshotInputs, s *snapshotv1.VolumeSnapshot) {
				byContent(w, s)
				w.content.Spec.VolumeSnapshotRef.UID = "before"
			}, words: "want this snapshot",
		},
	} {
		w, s := testWorld()
		if c.change != nil {
			c.change(&w, s)
		}
		got := w.request(s)
		if c.words != "" {
			if !strings.Contains(got.Refused+got.Waits, c.words) || (got.Waits != "") != (what == "no volume yet") {
				t.Errorf("%s: %q, %q, want %q", what, got.Refused, got.Waits, c.words)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(controller.Snapshot{})); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}
