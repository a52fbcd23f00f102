package made

import (
	"fmt"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// Owned returns why only the cluster may act on an object, and what to do instead; "" if this node
// may. The cluster owns a VolumeSnapshot of one of its claims (those for which cluster returns
// true), a VolumeGroupSnapshot that selects one, and a claim that is to be a clone of one.
func Owned(
	obj runtime.Object, claims func() []*corev1.PersistentVolumeClaim, cluster func(claim source.Key) bool,
) string {
	switch o := obj.(type) {
	case *groupv1.VolumeGroupSnapshot:
		selector, err := metav1.LabelSelectorAsSelector(o.Spec.Source.Selector)
		if err != nil {
			return "" // rejected for that elsewhere
		}
		for _, c := range claims() {
			of := controller.Key{Namespace: c.Namespace, Name: c.Name}
			if c.Namespace == o.Namespace && selector.Matches(labels.Set(c.Labels)) && cluster(CatalogKey(of)) {
				return ownedSnapshot(of, resolve.KindGroupSnapshot)
			}
		}
	case *snapshotv1.VolumeSnapshot:
		of := controller.Key{Namespace: o.Namespace, Name: deref(o.Spec.Source.PersistentVolumeClaimName)}
		if cluster(CatalogKey(of)) {
			return ownedSnapshot(of, resolve.KindSnapshot)
		}
	case *corev1.PersistentVolumeClaim:
		if s := dataSource(o); s != nil && s.Claim != (controller.Key{}) && cluster(CatalogKey(s.Claim)) {
			return ownedClone(s.Claim)
		}
	}
	return ""
}

func ownedSnapshot(of controller.Key, kind string) string {
	return fmt.Sprintf("claim %s is of the cluster, whose external-snapshotter makes its snapshots: create the "+
		"%s there, with kubectl apply -n %s -f FILE", of, kind, of.Namespace)
}

func ownedClone(of controller.Key) string {
	return fmt.Sprintf("claim %s is of the cluster, whose external-provisioner clones its volume: create the claim "+
		"with this dataSource there, with kubectl apply -n %s -f FILE", of, of.Namespace)
}

// updateClones passes the clones of a claim to the controller again, since the claim's owner may
// have changed.
func (p *Provider) updateClones(claim source.Key) {
	for _, key := range matching(&p.syncing, p.clones, func(_, of source.Key) bool { return of == claim }) {
		p.updateClaim(key)
	}
}

// noteClone notes which claim c is to be a clone of. If that claim belongs to the cluster,
// noteClone makes the source invalid. The caller holds syncing.
func (p *Provider) noteClone(key source.Key, c *controller.Claim) {
	if c.Source == nil || c.Source.Claim == (controller.Key{}) {
		return
	}
	of := CatalogKey(c.Source.Claim)
	p.clones[key] = of
	if p.Catalog.Provider(of) == p.Remote {
		c.Source = &controller.DataSource{Unknown: ownedClone(c.Source.Claim)}
	}
}
