package ephemeral

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// use says how a pod names a claim: by a template, by a persistentVolumeClaim, or both.
type use struct{ template, plain bool }

// uses knows which listed pods name which claims.
type uses struct {
	claims map[source.Key]map[source.Key]use // by claim, then by pod
	pods   map[source.Key][]source.Key       // the claims of a pod
}

func newUses() uses {
	return uses{claims: map[source.Key]map[source.Key]use{}, pods: map[source.Key][]source.Key{}}
}

// set replaces what a pod names, nil if no source lists it, and returns the claims that it named and names.
func (u uses) set(key source.Key, pod *corev1.Pod) []source.Key {
	now := map[source.Key]use{}
	if pod != nil {
		for _, v := range pod.Spec.Volumes {
			switch {
			case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil && pod.DeletionTimestamp == nil:
				claim := resolve.EphemeralClaim(pod, v)
				now[claim] = use{template: true, plain: now[claim].plain}
			case v.PersistentVolumeClaim != nil:
				claim := claimKey(pod.Namespace, v.PersistentVolumeClaim.ClaimName)
				now[claim] = use{template: now[claim].template, plain: true}
			}
		}
	}
	before := u.pods[key]
	for _, claim := range before {
		if delete(u.claims[claim], key); len(u.claims[claim]) == 0 {
			delete(u.claims, claim)
		}
	}
	delete(u.pods, key)
	for claim, how := range now {
		if u.claims[claim] == nil {
			u.claims[claim] = map[source.Key]use{}
		}
		u.claims[claim][key] = how
		u.pods[key] = append(u.pods[key], claim)
	}
	return append(slices.Clone(before), u.pods[key]...)
}

// template reports whether a pod's template asks for the claim.
func (u uses) template(claim source.Key) bool { return len(u.askers(claim)) > 0 }

// askers returns the pods whose templates ask for the claim, sorted.
func (u uses) askers(claim source.Key) (pods []source.Key) {
	for _, pod := range slices.SortedFunc(maps.Keys(u.claims[claim]), source.Key.Compare) {
		if u.claims[claim][pod].template {
			pods = append(pods, pod)
		}
	}
	return pods
}

// plain returns a pod that names the claim in a persistentVolumeClaim; "" if there is none.
func (u uses) plain(claim source.Key) string {
	for _, pod := range slices.SortedFunc(maps.Keys(u.claims[claim]), source.Key.Compare) {
		if u.claims[claim][pod].plain {
			return pod.String()
		}
	}
	return ""
}
