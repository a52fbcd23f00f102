package made

import (
	"fmt"
	"maps"
	"slices"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
)

// groupsWhere tells of the group snapshots for which is says so, but for those that are made: they
// stay as they are, whatever becomes of their claims.
func (p *Provider) groupsWhere(is func(key source.Key) bool) {
	p.telling.Lock()
	keys := slices.SortedFunc(maps.Keys(p.groups), source.Key.Compare)
	p.telling.Unlock()
	for _, key := range keys {
		if g, known := p.Controller.Group(ClaimKey(key)); is(key) && (!known || g.Content == "") {
			p.group(key)
		}
	}
}

// group tells the controller how a VolumeGroupSnapshot of the catalog stands.
func (p *Provider) group(key source.Key) {
	p.telling.Lock()
	defer p.telling.Unlock()
	g, ok := p.Catalog.Get(key).(*groupv1.VolumeGroupSnapshot)
	if !ok {
		delete(p.groups, key)
		p.Controller.RemoveGroup(ClaimKey(key))
		return
	}
	p.groups[key] = struct{}{}
	w := groupWorld{classes: p.Catalog.GroupSnapshotClasses()}
	for _, claim := range p.Catalog.Claims() {
		if claim.Namespace == g.Namespace {
			of := source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name}
			w.claims = append(w.claims, groupClaim{claim, p.Catalog.VolumeOf(claim), p.Catalog.Provider(of) == p.Remote})
		}
	}
	p.Controller.SetGroup(w.asked(g))
}

// groupWorld is what a VolumeGroupSnapshot may choose from: the claims of its namespace, sorted.
type groupWorld struct {
	classes []*groupv1.VolumeGroupSnapshotClass
	claims  []groupClaim
}

// groupClaim is one claim with its volume, nil for none.
type groupClaim struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
	remote bool
}

// asked returns what a VolumeGroupSnapshot asks of the controller.
func (w groupWorld) asked(g *groupv1.VolumeGroupSnapshot) controller.Group {
	out := controller.Group{
		Key: controller.Key{Namespace: g.Namespace, Name: g.Name}, UID: string(g.UID),
		Class: controller.SnapshotClass{Name: deref(g.Spec.VolumeGroupSnapshotClassName)},
	}
	out.Freeze, _ = resolve.FreezeOf(g) // what is wrong with it was refused at the edge
	selector, err := metav1.LabelSelectorAsSelector(g.Spec.Source.Selector)
	if err != nil {
		out.Refused = fmt.Sprintf("spec.source.selector: %v", err)
		return out
	}
	driver := ""
	for _, c := range w.claims {
		if !selector.Matches(labels.Set(c.claim.Labels)) {
			continue
		}
		key := controller.Key{Namespace: c.claim.Namespace, Name: c.claim.Name}
		if c.remote {
			out.Refused = ownedSnapshot(key, resolve.KindGroupSnapshot)
			return out
		}
		if out.Waits, out.Refused = unsnapped(key, c.volume); out.Waits+out.Refused != "" {
			return out
		}
		csi := c.volume.Spec.CSI
		if driver != "" && driver != csi.Driver {
			out.Refused = fmt.Sprintf("claim %s is of driver %s, and claim %s of driver %s; the volumes of a group are of one "+
				"driver", out.Members[0].Claim, driver, key, csi.Driver)
			return out
		}
		driver = csi.Driver
		if n := len(g.Name) + 1 + len(c.claim.Name); n > validation.DNS1123SubdomainMaxLength {
			out.Refused = fmt.Sprintf("metadata.name: with claim %s it gives its snapshot a name of %d bytes; want at most %d",
				key, n, validation.DNS1123SubdomainMaxLength)
			return out
		}
		out.Members = append(out.Members, controller.Member{
			Claim: key, Volume: csi.VolumeHandle, Mode: ModeOf(c.volume.Spec.VolumeMode),
		})
	}
	if len(out.Members) == 0 {
		out.Refused = fmt.Sprintf("spec.source.selector: found %s, and no claim of namespace %s has these labels",
			metav1.FormatLabelSelector(g.Spec.Source.Selector), g.Namespace)
		return out
	}
	out.Class, out.Refused = chooseClass("spec.volumeGroupSnapshotClassName", out.Class.Name, driver,
		groupClasses(w.classes))
	return out
}
