package made

import (
	"fmt"
	"slices"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// updateGroups updates the group snapshots that match by key and content name. It skips those
// already made of claims, which later changes of the claims do not affect.
func (p *Provider) updateGroups(match func(key source.Key, content string) bool) {
	for _, key := range matching(&p.syncing, p.groups, func(key source.Key, content string) bool {
		g, known := p.Controller.Group(ClaimKey(key))
		return match(key, content) && (!known || g.Content == "" || content != "")
	}) {
		p.updateGroup(key)
	}
}

// updateGroup passes the current state of a VolumeGroupSnapshot to the controller.
func (p *Provider) updateGroup(key source.Key) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	g, ok := p.Catalog.Get(key).(*groupv1.VolumeGroupSnapshot)
	if !ok {
		delete(p.groups, key)
		p.Controller.RemoveGroup(ClaimKey(key))
		return
	}
	p.groups[key] = deref(g.Spec.Source.VolumeGroupSnapshotContentName)
	w := groupInputs{classes: p.Catalog.GroupSnapshotClasses()}
	s, known := p.Controller.Group(ClaimKey(key))
	selector, err := metav1.LabelSelectorAsSelector(g.Spec.Source.Selector)
	switch content := p.groups[key]; {
	case content != "":
		object := p.Catalog.Get(source.Key{Kind: resolve.KindGroupSnapshotContent, Name: content})
		w.content, _ = object.(*groupv1.VolumeGroupSnapshotContent)
	case known && s.Content != "": // already made; claims no longer change it
	case err == nil:
		for _, claim := range p.Catalog.Claims() {
			if claim.Namespace == g.Namespace && selector.Matches(labels.Set(claim.Labels)) {
				of := source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name}
				w.claims = append(w.claims, groupClaim{claim, p.Catalog.VolumeOf(claim), p.Catalog.Provider(of) == p.Remote})
			}
		}
	}
	p.Controller.SetGroup(w.request(g))
}

// groupInputs is what a VolumeGroupSnapshot is evaluated against. The claims are sorted.
type groupInputs struct {
	classes []*groupv1.VolumeGroupSnapshotClass
	claims  []groupClaim
	// content is the one that the VolumeGroupSnapshot names; nil if it does not exist.
	content *groupv1.VolumeGroupSnapshotContent
}

// groupClaim is a claim with its volume, which may be nil.
type groupClaim struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
	remote bool
}

// request returns what a VolumeGroupSnapshot requests from the controller.
func (w groupInputs) request(g *groupv1.VolumeGroupSnapshot) controller.Group {
	out := controller.Group{
		Key: controller.Key{Namespace: g.Namespace, Name: g.Name}, UID: string(g.UID),
		Class: controller.SnapshotClass{Name: deref(g.Spec.VolumeGroupSnapshotClassName)},
	}
	out.Freeze, _ = resolve.FreezeOf(g) // an invalid annotation was rejected when the object arrived
	var driver string
	if name := deref(g.Spec.Source.VolumeGroupSnapshotContentName); name != "" {
		driver, out.Refused = w.fromContent(g, name, &out)
	} else {
		driver = w.fromClaims(g, &out)
	}
	if out.Refused != "" || out.Waits != "" {
		return out
	}
	out.Class, out.Refused = chooseClass("spec.volumeGroupSnapshotClassName", out.Class.Name, driver,
		groupClasses(w.classes))
	if w.content != nil {
		out.Class.Retain = w.content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain
	}
	return out
}

// fromContent stores the handles of the content that a VolumeGroupSnapshot names in out, and
// returns the driver.
func (w groupInputs) fromContent(g *groupv1.VolumeGroupSnapshot, name string, out *controller.Group,
) (driver, refused string) {
	if w.content == nil {
		return "", fmt.Sprintf("spec.source.volumeGroupSnapshotContentName: found %s, but there is no such "+
			"VolumeGroupSnapshotContent", name)
	}
	spec := w.content.Spec
	ref := spec.VolumeGroupSnapshotRef
	if ref.Namespace != g.Namespace || ref.Name != g.Name || ref.UID != "" && ref.UID != g.UID {
		return "", fmt.Sprintf("VolumeGroupSnapshotContent %s: spec.volumeGroupSnapshotRef: found %s/%s, want this group "+
			"snapshot", name, ref.Namespace, ref.Name)
	}
	if handles := spec.Source.GroupSnapshotHandles; handles != nil {
		out.Handle, out.Handles = handles.VolumeGroupSnapshotHandle, handles.VolumeSnapshotHandles
	}
	return spec.Driver, ""
}

// fromClaims stores the selected volumes in out and returns their driver. If they cannot be
// snapshotted together, it stores the reason instead.
func (w groupInputs) fromClaims(g *groupv1.VolumeGroupSnapshot, out *controller.Group) (driver string) {
	selector, err := metav1.LabelSelectorAsSelector(g.Spec.Source.Selector)
	if err != nil {
		out.Refused = fmt.Sprintf("spec.source.selector: %v", err)
		return ""
	}
	for _, c := range w.claims {
		if !selector.Matches(labels.Set(c.claim.Labels)) {
			continue
		}
		key := controller.Key{Namespace: c.claim.Namespace, Name: c.claim.Name}
		if c.remote {
			out.Refused = ownedSnapshot(key, resolve.KindGroupSnapshot)
			return ""
		}
		if out.Waits, out.Refused = checkVolume(key, c.volume); out.Waits+out.Refused != "" {
			return ""
		}
		csi := c.volume.Spec.CSI
		if driver != "" && driver != csi.Driver {
			out.Refused = fmt.Sprintf("claim %s is of driver %s, and claim %s of driver %s; want one driver for all "+
				"volumes of a group", out.Members[0].Claim, driver, key, csi.Driver)
			return ""
		}
		driver = csi.Driver
		same := func(m controller.Member) bool { return m.Volume == csi.VolumeHandle }
		if i := slices.IndexFunc(out.Members, same); i >= 0 {
			out.Refused = fmt.Sprintf("claims %s and %s have one volume, %s; want each volume once", out.Members[i].Claim, key,
				csi.VolumeHandle)
			return ""
		}
		if n := len(g.Name) + 1 + len(c.claim.Name); n > validation.DNS1123SubdomainMaxLength {
			out.Refused = fmt.Sprintf("metadata.name: with claim %s it gives its snapshot a name of %d bytes; want at most %d",
				key, n, validation.DNS1123SubdomainMaxLength)
			return ""
		}
		out.Members = append(out.Members, controller.Member{
			Claim: key, Volume: csi.VolumeHandle, Mode: ModeOf(c.volume.Spec.VolumeMode),
		})
	}
	if len(out.Members) == 0 {
		out.Refused = fmt.Sprintf("spec.source.selector: found %s, and no claim of namespace %s has these labels",
			metav1.FormatLabelSelector(g.Spec.Source.Selector), g.Namespace)
	}
	return driver
}
