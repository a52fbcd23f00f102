package resolve

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// EphemeralClaim returns the key of the claim that is made for a generic ephemeral volume of the pod. The claims of
// two pods may have one name: that of pod a and volume b-c, and that of pod a-b and volume c.
func EphemeralClaim(pod *corev1.Pod, v corev1.Volume) Key {
	return Key{KindClaim, pod.Namespace, pod.Name + "-" + v.Name}
}

// notMade says why the claim of a generic ephemeral volume does not exist.
func (r *resolver) notMade(claim Key) error {
	if b := r.objects.Binding(claim); b.Note != "" {
		return because(b.Cause.Code, b.Cause.Of, fmt.Errorf("%s: not found: %s", claim, b.Note))
	}
	return fmt.Errorf("%s: not found; the claim of a generic ephemeral volume has the pod's and the volume's "+
		"name and the pod as its controller", claim)
}
