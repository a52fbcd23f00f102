package resolve

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Owner is the claim that has, or had, a PersistentVolume whose spec.claimRef names none. The zero
// Owner means that no claim has had it. In a cluster the API server's binder writes claimRef instead.
type Owner struct {
	// Claim is "namespace/name".
	Claim string
	// UID is the claim's; "" stands for every claim of that name.
	UID types.UID
	// Storage is the volume's [Storage] at that time. With another, it is another volume.
	Storage string
	// Released means that an operator deleted the claim: the data is still the claim's.
	Released bool
	// Unreadable says why the record of the owner cannot be read; "" if it can.
	Unreadable string
}

// Refuses says why a claim may not have the volume of that name and storage; "" if it may. The first
// claim keeps a volume. A claim that was deleted and applied again is the same, unless a person gave it
// another UID.
func (o Owner) Refuses(volume, storage string, claim *corev1.PersistentVolumeClaim) string {
	release := "to give it to another claim: csi-volmgr volume release " + volume
	switch {
	case o.Unreadable != "":
		return fmt.Sprintf("the record of the claim that has it cannot be read (%s); %s", o.Unreadable, release)
	case o.Claim == "" || o.Storage != storage || o.Is(claim):
		return ""
	case o.Released:
		return fmt.Sprintf("found the data of claim %s, which was deleted; %s", o.Claim, release)
	}
	return fmt.Sprintf("claim %s has it", o.Claim)
}

// Is reports whether the owner is this claim.
func (o Owner) Is(claim *corev1.PersistentVolumeClaim) bool {
	return o.Claim == claim.Namespace+"/"+claim.Name && (o.UID == "" || claim.UID == "" || o.UID == claim.UID)
}
