package source

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// SetClaimWait sets what the pods wait for whose volumeClaimTemplate asks for a claim that no source lists. "" removes
// the text.
func (c *Catalog) SetClaimWait(claim Key, text string) {
	c.update.Lock()
	defer c.update.Unlock()
	c.mu.Lock()
	changed := setOrDelete(c.waits, claim, text)
	c.mu.Unlock()
	if changed {
		c.resolve(c.affectedPods([]Key{claim}))
	}
}

// UserOf returns a pod that names the claim, by a volume or because the claim is made for one of its volumes.
func (c *Catalog) UserOf(namespace, claim string) (pod Key, found bool) {
	key := Key{Kind: resolve.KindClaim, Namespace: namespace, Name: claim}
	pods := c.Pods()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range pods {
		if p.Namespace != namespace {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if c.uses(p, v, key) {
				return Key{Kind: resolve.KindPod, Namespace: namespace, Name: p.Name}, true
			}
		}
	}
	return Key{}, false
}

// uses reports whether the pod's volume is the claim. A template whose claim waits to be made uses none.
func (c *Catalog) uses(p *corev1.Pod, v corev1.Volume, claim Key) bool {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName == claim.Name
	case v.Ephemeral == nil || resolve.EphemeralClaim(p, v) != claim:
		return false
	}
	return c.waits[claim] == "" || c.holder(claim) != nil
}
