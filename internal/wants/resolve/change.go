package resolve

import (
	"fmt"
	"maps"
	"slices"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// CheckChange returns the faults in replacing object was by is, which has the same
// key: an immutable Secret or ConfigMap must keep its data and stay immutable, a pod
// must keep its volumes, and a VolumeSnapshot or VolumeGroupSnapshot its source.
func CheckChange(was, is runtime.Object) []Fault {
	const want = "the old content, since the object is immutable; delete it first"
	var faults []Fault
	differ := func(field string, same bool) {
		if !same {
			faults = append(faults, Fault{field, "other content", want})
		}
	}
	switch old := was.(type) {
	case *corev1.ConfigMap:
		if now, ok := is.(*corev1.ConfigMap); ok && isTrue(old.Immutable) {
			differ("data", maps.Equal(old.Data, now.Data))
			differ("binaryData", equality.Semantic.DeepEqual(old.BinaryData, now.BinaryData))
			differ("immutable", isTrue(now.Immutable))
		}
	case *corev1.Pod:
		if now, ok := is.(*corev1.Pod); ok {
			return checkPodChange(old, now)
		}
	case *snapshotv1.VolumeSnapshot:
		if now, ok := is.(*snapshotv1.VolumeSnapshot); ok {
			return checkSourceChange(equality.Semantic.DeepEqual(old.Spec.Source, now.Spec.Source))
		}
	case *groupv1.VolumeGroupSnapshot:
		if now, ok := is.(*groupv1.VolumeGroupSnapshot); ok {
			return checkSourceChange(equality.Semantic.DeepEqual(old.Spec.Source, now.Spec.Source))
		}
	case *corev1.Secret:
		if now, ok := is.(*corev1.Secret); ok && isTrue(old.Immutable) {
			differ("data", equality.Semantic.DeepEqual(old.Data, now.Data))
			differ("immutable", isTrue(now.Immutable))
		}
	}
	return faults
}

func checkSourceChange(same bool) []Fault {
	if same {
		return nil
	}
	return []Fault{{
		"spec.source", "another source",
		"the old source, since a snapshot keeps the data of its source; give the new one another name",
	}}
}

func isTrue(b *bool) bool { return b != nil && *b }

// checkPodChange refuses a change of a pod's volumes, as the API server does. A volume
// that the pod no longer names would stay mounted, because containers may use it, but
// would not be shown anywhere. A pod with another UID is another pod.
func checkPodChange(was, is *corev1.Pod) []Fault {
	if was.UID != is.UID || hasEnded(is) {
		return nil
	}
	want := fmt.Sprintf("the old volumes, since the volumes of a pod cannot change; stop its containers, "+
		"delete the pod (csi-volmgr delete pod %s -n %s) and apply the new one, or give the new one another metadata.uid",
		is.Name, is.Namespace)
	used, uses := usesOf(was), usesOf(is)
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if b, n := used[name], uses[name]; b.mount != "" && n.mount == "" || b.device != "" && n.device == "" {
			return []Fault{{"spec.containers", "no container with volume " + name, want}}
		}
		before, now := volumeNamed(was, name), volumeNamed(is, name)
		if equality.Semantic.DeepEqual(before, now) {
			continue
		}
		if f, resized := checkResize(before, now); resized {
			if f == (Fault{}) {
				continue
			}
			return []Fault{f}
		}
		return []Fault{{"spec.volumes", "another volume " + name, want}}
	}
	return nil
}

// checkResize reports whether the volumes differ only in the sizeLimit of an emptyDir
// of medium Memory, which may grow while its pod runs (KEP-6030). f is set if the new
// limit is smaller, because the pod's files may need the space.
func checkResize(was, is *corev1.Volume) (f Fault, resized bool) {
	if was == nil || is == nil || was.EmptyDir == nil || is.EmptyDir == nil ||
		was.EmptyDir.Medium != corev1.StorageMediumMemory {
		return f, false
	}
	same := is.DeepCopy()
	same.EmptyDir.SizeLimit = was.EmptyDir.SizeLimit
	if !equality.Semantic.DeepEqual(was, same) {
		return f, false
	}
	before, now := was.EmptyDir.SizeLimit, is.EmptyDir.SizeLimit
	field := fmt.Sprintf("spec.volumes (%s).emptyDir.sizeLimit", is.Name)
	switch {
	case limited(before) != limited(now) && limited(before):
		return Fault{field, "none", "a limit of " + before.String() + " or more, as the volume had one"}, true
	case limited(before) != limited(now):
		return Fault{field, now.String(), "none, as the volume was made without a limit"}, true
	case limited(now) && now.Cmp(*before) < 0:
		return Fault{field, now.String(), "at least the old limit, " + before.String() + ": a volume does not shrink"}, true
	}
	return f, true
}

func limited(q *resource.Quantity) bool { return q != nil && q.Sign() > 0 }

func volumeNamed(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// hasEnded reports whether the pod's source says that its containers have ended for good.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
