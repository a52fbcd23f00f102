package resolve

import (
	"fmt"
	"slices"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// checkGroupSnapshot makes the checks of a VolumeGroupSnapshot that need no other object.
func checkGroupSnapshot(s *groupv1.VolumeGroupSnapshot) []Fault {
	var faults []Fault
	switch selector, content := s.Spec.Source.Selector, s.Spec.Source.VolumeGroupSnapshotContentName; {
	case (selector == nil) == (content == nil):
		found := "neither"
		if content != nil {
			found = "both"
		}
		faults = append(faults, Fault{"spec.source", found, "one of selector and volumeGroupSnapshotContentName"})
	case content != nil:
		if f, bad := checkSubdomain("spec.source.volumeGroupSnapshotContentName", *content); bad {
			faults = append(faults, f)
		}
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

// checkGroupSnapshotContent refuses a content that asks for a new snapshot, as checkSnapshotContent does.
func checkGroupSnapshotContent(c *groupv1.VolumeGroupSnapshotContent) []Fault {
	const source = "spec.source."
	faults := checkDeletion("spec.deletionPolicy", c.Spec.DeletionPolicy)
	if f, bad := checkDriver("spec.driver", c.Spec.Driver); bad {
		faults = append(faults, f)
	}
	faults = append(faults, checkRef("spec.volumeGroupSnapshotRef", c.Spec.VolumeGroupSnapshotRef)...)
	handles := c.Spec.Source.GroupSnapshotHandles
	switch {
	case len(c.Spec.Source.VolumeHandles) > 0:
		return append(faults, Fault{
			source + "volumeHandles", c.Spec.Source.VolumeHandles[0],
			"groupSnapshotHandles; to make a snapshot of volumes, apply a VolumeGroupSnapshot",
		})
	case handles == nil || handles.VolumeGroupSnapshotHandle == "":
		return append(faults, Fault{
			source + "groupSnapshotHandles.volumeGroupSnapshotHandle", "", "the group snapshot's id as its driver knows it",
		})
	case len(handles.VolumeSnapshotHandles) == 0:
		return append(faults, Fault{
			source + "groupSnapshotHandles.volumeSnapshotHandles", "none", "the ids of all snapshots of the group",
		})
	}
	faults = append(faults, checkText(source+"groupSnapshotHandles.volumeGroupSnapshotHandle",
		handles.VolumeGroupSnapshotHandle, state.MaxHandle)...)
	for i, h := range handles.VolumeSnapshotHandles {
		field := fmt.Sprintf("%sgroupSnapshotHandles.volumeSnapshotHandles[%d]", source, i)
		if h == "" || slices.Contains(handles.VolumeSnapshotHandles[:i], h) {
			faults = append(faults, Fault{field, h, "an id that is not listed twice"})
		}
		faults = append(faults, checkText(field, h, state.MaxHandle)...)
	}
	return faults
}
