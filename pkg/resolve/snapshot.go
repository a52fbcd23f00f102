package resolve

import (
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SnapshotGroup is the API group of the kinds of snapshots.
const SnapshotGroup = "snapshot.storage.k8s.io"

// GroupSnapshotGroup is the API group of the kinds of group snapshots.
const GroupSnapshotGroup = "groupsnapshot.storage.k8s.io"

// Annotations of external-snapshotter.
const (
	// DefaultSnapshotClass marks the class of the snapshots of its driver that name none.
	DefaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"
	// DefaultGroupSnapshotClass is the same of a VolumeGroupSnapshotClass.
	DefaultGroupSnapshotClass = "groupsnapshot.storage.kubernetes.io/is-default-class"
	// AllowModeChange, on a VolumeSnapshotContent, lets a claim of another volumeMode be made of it.
	AllowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"
)

// ExtraCreateMetadata is, with the value true on a StorageClass, a VolumeSnapshotClass or a
// VolumeGroupSnapshotClass, that its driver is told the names of the claim or snapshot.
const ExtraCreateMetadata = "csi-volmgr.dev/extra-create-metadata"

// FreezeAnnotation is, on a VolumeSnapshot or a VolumeGroupSnapshot, for how long at the most the
// file systems of its volumes may be held still while the snapshot is made ("10s").
const FreezeAnnotation = "csi-volmgr.dev/freeze"

// mostFrozen bounds a freeze: the pods that write wait for its end.
const mostFrozen = time.Minute

// FreezeOf returns the value of FreezeAnnotation, 0 where there is none.
func FreezeOf(s metav1.Object) (time.Duration, *Fault) {
	text, ok := s.GetAnnotations()[FreezeAnnotation]
	if !ok {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > mostFrozen {
		return 0, &Fault{"metadata.annotations[" + FreezeAnnotation + "]", text, "a duration of at most 1m, such as 10s"}
	}
	return d, nil
}

// checkSnapshot checks a VolumeSnapshot as far as it alone tells.
func checkSnapshot(s *snapshotv1.VolumeSnapshot) []Fault {
	var faults []Fault
	claim, content := s.Spec.Source.PersistentVolumeClaimName, s.Spec.Source.VolumeSnapshotContentName
	switch {
	case (claim == nil) == (content == nil):
		found := "neither"
		if claim != nil {
			found = "both"
		}
		faults = append(faults, Fault{
			"spec.source", found, "one of persistentVolumeClaimName and volumeSnapshotContentName",
		})
	case claim != nil:
		if f, bad := checkSubdomain("spec.source.persistentVolumeClaimName", *claim); bad {
			faults = append(faults, f)
		}
	default:
		if f, bad := checkSubdomain("spec.source.volumeSnapshotContentName", *content); bad {
			faults = append(faults, f)
		}
	}
	if _, f := FreezeOf(s); f != nil {
		faults = append(faults, *f)
	}
	if class := s.Spec.VolumeSnapshotClassName; class != nil {
		if f, bad := checkSubdomain("spec.volumeSnapshotClassName", *class); bad {
			faults = append(faults, f)
		}
	}
	return faults
}

// checkGroupSnapshot checks a VolumeGroupSnapshot as far as it alone tells.
func checkGroupSnapshot(s *groupv1.VolumeGroupSnapshot) []Fault {
	var faults []Fault
	switch selector, content := s.Spec.Source.Selector, s.Spec.Source.VolumeGroupSnapshotContentName; {
	case content != nil:
		faults = append(faults, Fault{
			"spec.source.volumeGroupSnapshotContentName", *content,
			"spec.source.selector; a snapshot of a group that is there is named by a VolumeSnapshotContent",
		})
	case selector == nil:
		faults = append(faults, Fault{"spec.source.selector", "none", "labels of the claims to snapshot together"})
	default:
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			faults = append(faults, Fault{
				"spec.source.selector", metav1.FormatLabelSelector(selector), "a selector of labels: " + err.Error(),
			})
		}
	}
	if _, f := FreezeOf(s); f != nil {
		faults = append(faults, *f)
	}
	if class := s.Spec.VolumeGroupSnapshotClassName; class != nil {
		if f, bad := checkSubdomain("spec.volumeGroupSnapshotClassName", *class); bad {
			faults = append(faults, f)
		}
	}
	return faults
}

func checkGroupSnapshotClass(c *groupv1.VolumeGroupSnapshotClass) []Fault {
	faults := checkDeletion("deletionPolicy", c.DeletionPolicy)
	if f, bad := checkDriver("driver", c.Driver); bad {
		faults = append(faults, f)
	}
	return faults
}

func checkSnapshotClass(c *snapshotv1.VolumeSnapshotClass) []Fault {
	faults := checkDeletion("deletionPolicy", c.DeletionPolicy)
	if f, bad := checkDriver("driver", c.Driver); bad {
		faults = append(faults, f)
	}
	return faults
}

// checkSnapshotContent refuses a content that csi-volmgr would have to make: it makes those
// of its VolumeSnapshots itself, and reads the ones that name a snapshot which is there.
func checkSnapshotContent(c *snapshotv1.VolumeSnapshotContent) []Fault {
	faults := checkDeletion("spec.deletionPolicy", c.Spec.DeletionPolicy)
	if f, bad := checkDriver("spec.driver", c.Spec.Driver); bad {
		faults = append(faults, f)
	}
	if h := c.Spec.Source.VolumeHandle; h != nil {
		faults = append(faults, Fault{
			"spec.source.volumeHandle", *h,
			"a snapshotHandle; a snapshot of a volume is asked for by a VolumeSnapshot",
		})
	} else if h := c.Spec.Source.SnapshotHandle; h == nil || *h == "" {
		faults = append(faults, Fault{"spec.source.snapshotHandle", "", "the snapshot's id as its driver knows it"})
	} else {
		faults = append(faults, checkText("spec.source.snapshotHandle", *h, maxString)...)
	}
	if f, bad := checkSubdomain("spec.volumeSnapshotRef.name", c.Spec.VolumeSnapshotRef.Name); bad {
		faults = append(faults, f)
	}
	if f, bad := checkLabel("spec.volumeSnapshotRef.namespace", c.Spec.VolumeSnapshotRef.Namespace); bad {
		faults = append(faults, f)
	}
	return append(faults, checkVolumeMode("spec.sourceVolumeMode", c.Spec.SourceVolumeMode)...)
}

func checkDeletion(field string, p snapshotv1.DeletionPolicy) []Fault {
	if p == snapshotv1.VolumeSnapshotContentDelete || p == snapshotv1.VolumeSnapshotContentRetain {
		return nil
	}
	return []Fault{{field, string(p), "Delete or Retain"}}
}
