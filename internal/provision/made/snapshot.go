package made

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// Changed updates the controller after one object of the catalog changed.
func (p *Provider) Changed(key source.Key) {
	switch key.Kind {
	case resolve.KindClass, resolve.KindAttributesClass:
		p.updateClaims()
	case resolve.KindClaim:
		p.updateClaim(key)
		p.updateClones(key)
		p.updateSnapshots(func(k source.Key, of string) bool { return k.Namespace == key.Namespace && of == key.Name })
		p.updateGroups(func(k source.Key, content string) bool { return content == "" && k.Namespace == key.Namespace })
	case resolve.KindVolume:
		p.Wake()
		if pv, _ := p.Catalog.Listed(key.Name); pv != nil || p.Catalog.Provider(key) != Name {
			p.updateNamesake(key.Name)
		}
		p.updateSnapshotsOfVolume(key)
		p.updateGroups(func(_ source.Key, content string) bool { return content == "" })
	case resolve.KindSnapshot:
		p.updateSnapshot(key)
	case resolve.KindSnapshotClass, resolve.KindSnapshotContent:
		p.updateSnapshots(func(source.Key, string) bool { return true })
	case resolve.KindGroupSnapshot:
		p.updateGroup(key)
	case resolve.KindGroupSnapshotClass, resolve.KindGroupSnapshotContent:
		p.updateGroups(func(source.Key, string) bool { return true })
	}
}

// updateSnapshotsOfVolume updates the snapshots of the claim that has the volume.
func (p *Provider) updateSnapshotsOfVolume(key source.Key) {
	pv, _ := p.Catalog.Get(key).(*corev1.PersistentVolume)
	p.updateSnapshots(func(k source.Key, of string) bool {
		return of != "" && (pv == nil || pv.Spec.ClaimRef == nil ||
			pv.Spec.ClaimRef.Namespace == k.Namespace && pv.Spec.ClaimRef.Name == of)
	})
}

// updateSnapshots updates the snapshots that match by key and source claim.
func (p *Provider) updateSnapshots(match func(key source.Key, claim string) bool) {
	for _, key := range matching(&p.syncing, p.snapshots, match) {
		p.updateSnapshot(key)
	}
}

// matching locks mu and returns the sorted keys of m that match.
func matching[V any](mu *sync.Mutex, m map[source.Key]V, match func(source.Key, V) bool) []source.Key {
	mu.Lock()
	defer mu.Unlock()
	var keys []source.Key
	for _, key := range slices.SortedFunc(maps.Keys(m), source.Key.Compare) {
		if match(key, m[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

// updateSnapshot passes the current state of a VolumeSnapshot to the controller.
func (p *Provider) updateSnapshot(key source.Key) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	s, ok := p.Catalog.Get(key).(*snapshotv1.VolumeSnapshot)
	if !ok {
		delete(p.snapshots, key)
		p.Controller.RemoveSnapshot(ClaimKey(key))
		return
	}
	name := deref(s.Spec.Source.PersistentVolumeClaimName)
	p.snapshots[key] = name
	w := snapshotInputs{classes: p.Catalog.SnapshotClasses()}
	if content := deref(s.Spec.Source.VolumeSnapshotContentName); content != "" {
		object := p.Catalog.Get(source.Key{Kind: resolve.KindSnapshotContent, Name: content})
		w.content, _ = object.(*snapshotv1.VolumeSnapshotContent)
	} else {
		of := source.Key{Kind: resolve.KindClaim, Namespace: s.Namespace, Name: name}
		w.claim, _ = p.Catalog.Get(of).(*corev1.PersistentVolumeClaim)
		w.remote = p.Catalog.Provider(of) == p.Remote
		if w.claim != nil {
			w.volume = p.Catalog.VolumeOf(w.claim)
		}
	}
	p.Controller.SetSnapshot(w.request(s))
}

// snapshotInputs are the objects that a VolumeSnapshot names; nil for those that do not exist.
type snapshotInputs struct {
	classes []*snapshotv1.VolumeSnapshotClass
	claim   *corev1.PersistentVolumeClaim
	volume  *corev1.PersistentVolume
	content *snapshotv1.VolumeSnapshotContent
	// remote means that the claim belongs to a cluster, whose external-snapshotter makes snapshots.
	remote bool
}

// request returns what a VolumeSnapshot requests from the controller.
func (w snapshotInputs) request(s *snapshotv1.VolumeSnapshot) controller.Snapshot {
	out := controller.Snapshot{
		Key: controller.Key{Namespace: s.Namespace, Name: s.Name}, UID: string(s.UID),
		Class: controller.SnapshotClass{Name: deref(s.Spec.VolumeSnapshotClassName)},
	}
	out.Freeze, _ = resolve.FreezeOf(s) // an invalid annotation was rejected when the object arrived
	var driver string
	if name := deref(s.Spec.Source.VolumeSnapshotContentName); name != "" {
		driver, out.Refused = w.fromContent(s, name, &out)
	} else {
		driver, out.Refused = w.fromClaim(s, &out)
	}
	if out.Refused != "" || out.Waits != "" {
		return out
	}
	out.Class, out.Refused = chooseClass("spec.volumeSnapshotClassName", out.Class.Name, driver,
		snapshotClasses(w.classes))
	if w.content != nil {
		out.Class.Retain = w.content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain
	}
	return out
}

// fromClaim stores the volume of the source claim in out and returns its driver.
func (w snapshotInputs) fromClaim(s *snapshotv1.VolumeSnapshot, out *controller.Snapshot) (driver, refused string) {
	out.Claim = controller.Key{Namespace: s.Namespace, Name: deref(s.Spec.Source.PersistentVolumeClaimName)}
	if w.claim == nil {
		return "", fmt.Sprintf("spec.source.persistentVolumeClaimName: found %s, but there is no such claim in namespace %s",
			out.Claim.Name, s.Namespace)
	}
	if w.remote {
		return "", ownedSnapshot(out.Claim, resolve.KindSnapshot)
	}
	if out.Waits, refused = checkVolume(out.Claim, w.volume); out.Waits+refused != "" {
		return "", refused
	}
	out.Volume, out.Mode = w.volume.Spec.CSI.VolumeHandle, ModeOf(w.volume.Spec.VolumeMode)
	return w.volume.Spec.CSI.Driver, ""
}

// checkVolume checks whether the claim's volume, which may be nil, can be snapshotted. waits is why
// not yet, and refused is why never.
func checkVolume(claim controller.Key, volume *corev1.PersistentVolume) (waits, refused string) {
	switch {
	case volume == nil:
		return fmt.Sprintf("claim %s has no volume yet", claim), ""
	case volume.Spec.CSI == nil:
		return "", fmt.Sprintf("claim %s has volume %s, which is of no CSI driver; only CSI drivers make snapshots", claim,
			volume.Name)
	}
	return "", ""
}

// fromContent stores the handle of the content that a VolumeSnapshot names in out and returns the
// driver.
func (w snapshotInputs) fromContent(s *snapshotv1.VolumeSnapshot, name string, out *controller.Snapshot,
) (driver, refused string) {
	if w.content == nil {
		return "", fmt.Sprintf("spec.source.volumeSnapshotContentName: found %s, but there is no such "+
			"VolumeSnapshotContent", name)
	}
	spec := w.content.Spec
	ref := spec.VolumeSnapshotRef
	if ref.Namespace != s.Namespace || ref.Name != s.Name || ref.UID != "" && ref.UID != s.UID {
		return "", fmt.Sprintf("VolumeSnapshotContent %s: spec.volumeSnapshotRef: found %s/%s, want this snapshot", name,
			ref.Namespace, ref.Name)
	}
	out.Handle = deref(spec.Source.SnapshotHandle)
	if spec.SourceVolumeMode != nil && w.content.Annotations[resolve.AllowModeChange] != "true" {
		out.Mode = ModeOf(spec.SourceVolumeMode)
	}
	return spec.Driver, ""
}
