package made

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// holds returns the names that the volumes of the claims hold.
func holds(claims []controller.ClaimStatus, volumes map[string]*corev1.PersistentVolume) map[string]source.Hold {
	names := map[string]source.Hold{}
	for _, c := range claims {
		if c.VolumeName != "" {
			names[c.VolumeName] = source.Hold{Claim: c.Claim.String(), Volume: volumes[c.VolumeName], Yields: !c.Sole}
		}
	}
	return names
}

// follow tells the controller what sources say of made volumes: a reclaim policy is followed, by the source
// that takes precedence, and a volume in whose place no source has another becomes sole.
func (p *Provider) follow() {
	says, differs := map[string]corev1.PersistentVolumeReclaimPolicy{}, map[string]bool{}
	for _, k := range p.Catalog.Contenders() {
		policy := k.Volume.Spec.PersistentVolumeReclaimPolicy
		switch _, said := says[k.Name]; {
		case k.Differs != "":
			differs[k.Name] = true
		case policy != "" && !said:
			says[k.Name] = policy
		}
	}
	known := len(p.Silent()) == 0
	for _, c := range p.Controller.Claims() {
		policy := controller.ReclaimPolicy(says[c.VolumeName])
		if says[c.VolumeName] == corev1.PersistentVolumeReclaimRecycle {
			policy = controller.Retain
		}
		if policy != "" && c.Volume != nil && c.Volume.ReclaimPolicy != policy {
			p.Controller.SetReclaim(c.Claim, c.VolumeName, policy)
		}
		if known && !c.Sole && c.VolumeName != "" && !differs[c.VolumeName] {
			p.Controller.SetSole(c.Claim, c.VolumeName)
		}
	}
}

// taken reports whether a source has a PersistentVolume of the name that the claim's volume would get, where
// none was begun. It is then the claim's, if its claimRef says so; else refused says why the claim gets none.
func (p *Provider) taken(claim *corev1.PersistentVolumeClaim) (taken bool, refused string) {
	name := p.Controller.VolumeName(string(claim.UID))
	pv, provider := p.Catalog.Listed(name)
	if pv == nil || p.Provisions(source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name}) {
		return false, ""
	}
	select {
	case <-p.Catalog.Held():
	default:
		return true, "" // until the controller has its records
	}
	if resolve.RefNames(pv, claim) {
		return true, ""
	}
	return false, fmt.Sprintf("PersistentVolume %s of source %s has the name that its volume would get; delete that, or "+
		"name this claim in its spec.claimRef to use it", name, provider)
}

// updateNamesake passes the claim whose volume has, or would get, the name to the controller again.
func (p *Provider) updateNamesake(name string) {
	p.syncing.Lock()
	claim, known := p.names[name]
	p.syncing.Unlock()
	if known {
		p.updateClaim(claim)
	}
}
