package resolve

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// SnapshotGroup is the API group of the kinds of snapshots.
const SnapshotGroup = "snapshot.storage.k8s.io"

// GroupSnapshotGroup is the API group of the kinds of group snapshots.
const GroupSnapshotGroup = "groupsnapshot.storage.k8s.io"

// Annotations of external-snapshotter.
const (
	// DefaultSnapshotClass marks the VolumeSnapshotClass that snapshots without a class use, for each driver.
	DefaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"
	// DefaultGroupSnapshotClass marks a VolumeGroupSnapshotClass in the same way.
	DefaultGroupSnapshotClass = "groupsnapshot.storage.kubernetes.io/is-default-class"
	// AllowModeChange, on a VolumeSnapshotContent, allows a claim with another volumeMode to be restored from it.
	AllowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"
)

// ExtraCreateMetadata, set to true on a StorageClass, VolumeSnapshotClass or
// VolumeGroupSnapshotClass, passes the names of the claim or snapshot to the driver.
const ExtraCreateMetadata = "csi-volmgr.dev/extra-create-metadata"

// FreezeAnnotation, on a VolumeSnapshot or VolumeGroupSnapshot, is how long the file systems of its
// volumes may be frozen while the snapshot is made ("10s").
const FreezeAnnotation = "csi-volmgr.dev/freeze"

// maxFreeze limits a freeze, because pods that write wait until it ends.
const maxFreeze = time.Minute

// FreezeOf returns the value of FreezeAnnotation, or 0 if there is none.
func FreezeOf(s metav1.Object) (time.Duration, *Fault) {
	text, ok := s.GetAnnotations()[FreezeAnnotation]
	if !ok {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxFreeze {
		return 0, &Fault{"metadata.annotations[" + FreezeAnnotation + "]", text, "a duration of at most 1m, such as 10s"}
	}
	return d, nil
}

// checkSnapshot makes the checks of a VolumeSnapshot that need no other object.
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

func checkSnapshotClass(c *snapshotv1.VolumeSnapshotClass) []Fault {
	faults := checkDeletion("deletionPolicy", c.DeletionPolicy)
	if f, bad := checkDriver("driver", c.Driver); bad {
		faults = append(faults, f)
	}
	return faults
}

// checkSnapshotContent refuses a content that asks for a new snapshot. csi-volmgr reads
// contents that name an existing snapshot; for new ones there are VolumeSnapshots.
func checkSnapshotContent(c *snapshotv1.VolumeSnapshotContent) []Fault {
	faults := checkDeletion("spec.deletionPolicy", c.Spec.DeletionPolicy)
	if f, bad := checkDriver("spec.driver", c.Spec.Driver); bad {
		faults = append(faults, f)
	}
	if h := c.Spec.Source.VolumeHandle; h != nil {
		faults = append(faults, Fault{
			"spec.source.volumeHandle", *h,
			"a snapshotHandle; to make a snapshot of a volume, apply a VolumeSnapshot",
		})
	} else if h := c.Spec.Source.SnapshotHandle; h == nil || *h == "" {
		faults = append(faults, Fault{"spec.source.snapshotHandle", "", "the snapshot's id as its driver knows it"})
	} else {
		faults = append(faults, checkText("spec.source.snapshotHandle", *h, state.MaxHandle)...)
	}
	faults = append(faults, checkRef("spec.volumeSnapshotRef", c.Spec.VolumeSnapshotRef)...)
	return append(faults, checkVolumeMode("spec.sourceVolumeMode", c.Spec.SourceVolumeMode)...)
}

func checkDeletion(field string, p snapshotv1.DeletionPolicy) []Fault {
	if p == snapshotv1.VolumeSnapshotContentDelete || p == snapshotv1.VolumeSnapshotContentRetain {
		return nil
	}
	return []Fault{{field, string(p), "Delete or Retain"}}
}

// checkRef checks a content's reference to its snapshot object.
func checkRef(field string, ref corev1.ObjectReference) []Fault {
	var faults []Fault
	if f, bad := checkSubdomain(field+".name", ref.Name); bad {
		faults = append(faults, f)
	}
	if f, bad := checkLabel(field+".namespace", ref.Namespace); bad {
		faults = append(faults, f)
	}
	return faults
}
