package ephemeral

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// step is what is done next for a claim name.
type step int

const (
	stay   step = iota // nothing
	create             // make the claim for the first of the pods
	end                // record that the pod is gone
	erase              // delete the claim, and its volume by the reclaim policy
	drop               // forget the row: the claim is another source's
)

// facts is what a decision about one claim name depends on.
type facts struct {
	// made means that there is a row; going that its pod is gone.
	made, going bool
	// listed means that a source lists the row's pod, with its UID.
	listed bool
	// unread says why the pod or the claim may exist although no source shows it; "" if none is hidden.
	unread string
	// asked means that a pod's template asks for the claim.
	asked bool
	// other is the source of another claim of that name; "" if there is none.
	other string
	// left says which volume an earlier claim of that name has left; "" if there is none.
	left string
	// user is a pod that names the claim in a persistentVolumeClaim; "" if there is none.
	user string
	// silent means that a source of this node has not listed its objects.
	silent bool
	// lost means that the journal may have lost records and no operator has accepted that.
	lost bool
}

// next returns the next step, and what the pods wait for that ask for the claim while no source lists it.
func next(f facts) (s step, wait string) {
	switch {
	case !f.made && !f.asked:
		return stay, ""
	case f.silent:
		return stay, "not every source has listed its objects yet"
	case f.unread != "":
		return stay, f.unread
	case !f.made && f.other != "":
		return stay, ""
	case !f.made && f.left != "":
		return stay, f.left
	case !f.made:
		return create, ""
	case !f.going && f.listed:
		return stay, ""
	case f.lost:
		return stay, "its pod is gone by a journal that may have lost records; confirm that: csi-volmgr journal accept " +
			"--reason=TEXT"
	case !f.going:
		return end, ""
	case f.other != "":
		return drop, ""
	case f.user != "":
		return stay, ""
	}
	return erase, ""
}

// newClaim makes the claim for a volume of the pod, as Kubernetes' ephemeral volume controller does. Its UID follows
// from the pod's, so that a claim whose row was lost gets its volume again, and another pod's claim never does.
func newClaim(pod *corev1.Pod, v corev1.Volume) *corev1.PersistentVolumeClaim {
	key := resolve.EphemeralClaim(pod, v)
	yes := true
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	return &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: key.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: claimUID(pod.UID, key),
			Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: resolve.KindPod, Name: pod.Name, UID: pod.UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: template.Spec,
	}
}

func claimUID(pod types.UID, claim source.Key) types.UID {
	claim.Kind += "/" + string(pod)
	return resolve.UID(claim)
}
