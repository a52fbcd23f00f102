// Package made connects the catalog and the controller: it passes the catalog's claims and
// snapshots to the controller, and the controller's volumes to the catalog.
//
// Owns: which claims the controller provisions, the initial content of a claim's volume, and the
// PersistentVolume of a provisioned volume.
//
// Does not: call drivers or keep records; the controller does.
package made

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// Name is this provider's name in the catalog.
const Name = "controller"

// OwnClasses maps a provider to a function that completes a claim's class.
type OwnClasses map[string]func(*storagev1.StorageClass, *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error)

// Config configures a Provider. Every field but OwnClass, SnapshotHandles and FSTypes is required.
type Config struct {
	Catalog    *source.Catalog
	Controller *controller.Controller
	// Remote is the provider of a cluster's claims, which the cluster binds itself.
	Remote string
	// OwnClass completes the class of a claim for providers whose claims carry values that their
	// class leaves open.
	OwnClass OwnClasses
	// Translate lists the in-tree plugins whose classes are translated ([translate.Kinds]).
	Translate []string
	// SnapshotHandles lists the namespaces whose claims may name a snapshot by the driver's handle.
	SnapshotHandles []string
	// FSTypes are the file system types of drivers' volumes whose class names none.
	FSTypes map[state.DriverName]string
	// Silent lists the sources that have not delivered all their objects.
	Silent func() []string
	// Shown is called after the catalog received the controller's current state.
	Shown  func()
	Logger *slog.Logger
}

// Provider connects the catalog's claims, snapshots and group snapshots with the controller's. Any
// goroutine may call Changed; only one may call Run.
type Provider struct {
	Config
	syncing sync.Mutex // held during an update of the controller
	// snapshots maps each VolumeSnapshot of the catalog to its source claim. Guarded by syncing.
	snapshots map[source.Key]string
	// groups maps each VolumeGroupSnapshot of the catalog to the content that it names, or "".
	// Guarded by syncing.
	groups map[source.Key]string
	// clones maps each claim that asks for a clone to the claim to be cloned. Guarded by syncing.
	clones map[source.Key]source.Key
	// names maps the names of volumes to the claims that have them, or would get them. Guarded by syncing.
	names map[string]source.Key
	// early means that a claim came before the names of volumes are known. Guarded by syncing.
	early bool
	wake  chan struct{} // capacity 1: a source changed

	// volumes and notes are what the catalog has from this provider, and unfit says why it refuses
	// the volume of a claim. Only Run's goroutine uses them.
	volumes map[string]*corev1.PersistentVolume
	notes   map[controller.Key]note
	unfit   map[controller.Key]string
}

// note is what a claim waits for, for people and for programs.
type note struct {
	text  string
	cause state.Cause
}

// New returns a Provider that has not shown anything.
func New(c Config) *Provider {
	return &Provider{
		Config: c, snapshots: map[source.Key]string{}, groups: map[source.Key]string{},
		clones: map[source.Key]source.Key{}, names: map[string]source.Key{}, wake: make(chan struct{}, 1),
		volumes: map[string]*corev1.PersistentVolume{}, notes: map[controller.Key]note{},
	}
}

// updateClaims passes all claims to the controller again after a class changed, which may be the
// default class of any of them.
func (p *Provider) updateClaims() {
	for _, claim := range p.Catalog.Claims() {
		p.updateClaim(source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name})
	}
}

// updateClaim passes the current state of a claim to the controller. It holds syncing from the
// look-up to the update, so that the controller never receives an older state last.
func (p *Provider) updateClaim(key source.Key) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	delete(p.clones, key)
	claim, ok := p.Catalog.Get(key).(*corev1.PersistentVolumeClaim)
	if !ok {
		maps.DeleteFunc(p.names, func(_ string, of source.Key) bool { return of == key })
		p.Controller.RemoveClaim(ClaimKey(key))
		return
	}
	name := p.Controller.VolumeName(string(claim.UID))
	if name == "" { // it was applied before the node runs
		p.early = true
		return
	}
	p.names[name] = key
	class := p.Catalog.ClassOf(claim)
	taken, refused := p.taken(claim)
	chosen := p.Catalog.Binding(key).Volume != ""
	cluster := p.Catalog.Provider(key) == p.Remote // which binds its own claims
	if cluster || chosen || taken || !isOurs(claim, class) {
		p.Controller.RemoveClaim(ClaimKey(key))
		return
	}
	if own := p.OwnClass[p.Catalog.Provider(key)]; own != nil && class != nil {
		var err error
		if class, err = own(class, claim); err != nil {
			p.Logger.Error("claim waits: its class is not known", "claim", key.String(), "err", err)
			p.Controller.RemoveClaim(ClaimKey(key))
			return
		}
	}
	c, err := RequestOf(claim, class, p.Translate)
	if err != nil {
		p.Logger.Error("storage class of an in-tree plugin cannot be translated; its claims wait", "class", class.Name, "err",
			err)
	}
	c.Class.FSType = p.FSTypes[c.Class.Provisioner]
	p.noteClone(key, &c)
	denyHandle(&c, p.SnapshotHandles)
	c.Refused = cmp.Or(c.Refused, refused)
	c.Attributes = attributes(claim, func(name string) *storagev1.VolumeAttributesClass {
		obj := p.Catalog.Get(source.Key{Kind: resolve.KindAttributesClass, Name: name})
		class, _ := obj.(*storagev1.VolumeAttributesClass)
		return class
	})
	p.Controller.SetClaim(c)
}

// Provisions reports whether the controller has provisioned, or may have provisioned, a volume for the
// claim.
func (p *Provider) Provisions(claim source.Key) bool {
	c, known := p.Controller.Claim(ClaimKey(claim))
	return known && c.Begun
}

// RequestOf returns what a claim requests from the controller. class is nil if it does not exist; kinds
// is [Config.Translate]. An error means that the in-tree class could not be translated to its CSI
// driver; the returned claim then waits for a driver of the plugin's name.
func RequestOf(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
	kinds []string,
) (controller.Claim, error) {
	c := controller.Claim{
		Key: controller.Key{Namespace: claim.Namespace, Name: claim.Name}, UID: string(claim.UID),
		Mode:      ModeOf(claim.Spec.VolumeMode),
		SizeBytes: claim.Spec.Resources.Requests.Storage().Value(), LimitBytes: claim.Spec.Resources.Limits.Storage().Value(),
		AccessModes: AccessModes(claim.Spec.AccessModes), Source: dataSource(claim),
	}
	if f, bad := resolve.Unsupported(claim); bad {
		c.Refused = f.String()
	}
	if class == nil {
		if name := claim.Spec.StorageClassName; name != nil {
			c.Class.Name = *name
		}
		return c, nil
	}
	is, err := translate.Class(class, kinds)
	if err != nil {
		c.Class = controller.Class{Name: class.Name, Provisioner: state.DriverName(class.Provisioner)}
		return c, err
	}
	c.Class = controller.Class{
		Name: is.Name, Provisioner: state.DriverName(is.Provisioner), Parameters: is.Parameters,
		MountOptions: is.MountOptions, AllowExpansion: is.AllowVolumeExpansion != nil && *is.AllowVolumeExpansion,
		Retain: Retains(is), Topologies: topologies(is.AllowedTopologies),
		Metadata: class.Annotations[resolve.ExtraCreateMetadata] == "true",
	}
	c.Annotations = templated(claim.Annotations, is.Parameters)
	return c, nil
}

// templated returns the annotations that the parameters name, so that a change of others is none of the claim.
func templated(annotations, parameters map[string]string) map[string]string {
	named := map[string]string{}
	for key, value := range annotations {
		for _, p := range parameters {
			if strings.Contains(p, controller.AnnotationTemplate(key)) {
				named[key] = value
			}
		}
	}
	return named
}

// topologies converts allowedTopologies. Two expressions of a term with the same key must both
// hold.
func topologies(terms []corev1.TopologySelectorTerm) []map[string][]string {
	var all []map[string][]string
	for _, term := range terms {
		place := map[string][]string{}
		for _, e := range term.MatchLabelExpressions {
			values := slices.Clone(e.Values)
			if before, again := place[e.Key]; again {
				values = slices.DeleteFunc(values, func(v string) bool { return !slices.Contains(before, v) })
			}
			place[e.Key] = values
		}
		all = append(all, place)
	}
	return all
}

// Run shows the controller's state in the catalog until ctx ends: its volumes as PersistentVolumes,
// and what a claim waits for as the claim's note.
func (p *Provider) Run(ctx context.Context) error {
	select {
	case <-p.Controller.Loaded():
	case <-ctx.Done():
		return nil
	}
	p.syncing.Lock()
	early := p.early
	p.syncing.Unlock()
	if early {
		p.updateClaims()
	}
	for {
		changed := p.Controller.Changed()
		p.Show()
		for is := true; is; {
			select {
			case <-changed:
				is = false
			case <-p.wake:
				p.follow()
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// Wake makes Run look at what sources say of made volumes again. The caller must call it when the results of
// Silent change.
func (p *Provider) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Show updates the catalog to the controller's current state. Only one goroutine may call it, and
// only after the controller has loaded its records.
func (p *Provider) Show() {
	p.showVolumes()
	p.showNotes()
	p.Catalog.Synced(Name)
	p.follow()
	p.Shown()
}

// showVolumes shows the volumes as PersistentVolumes. The catalog refuses one that no
// PersistentVolume can describe, for example because of what its driver answered. That must not end
// the daemon, which would find the same volume at every start.
func (p *Provider) showVolumes() {
	gone, unfit := maps.Clone(p.volumes), map[controller.Key]string{}
	shown, claims := map[string]*corev1.PersistentVolume{}, p.Controller.Claims()
	for _, v := range controller.VolumesOf(claims) {
		pv := PersistentVolume(v)
		if old, ok := p.volumes[pv.Name]; ok && equality.Semantic.DeepEqual(old, pv) {
			pv = old
		}
		shown[pv.Name] = pv
	}
	p.Catalog.Hold(holds(claims, shown)) // first, so that no source's volume gets into a made one's place
	for _, v := range controller.VolumesOf(claims) {
		pv := shown[v.Name]
		delete(gone, pv.Name)
		if p.volumes[pv.Name] == pv {
			continue
		}
		if err := p.Catalog.Put(Name, pv); err != nil {
			unfit[v.Claim] = fmt.Sprintf("its volume cannot be used: %v", err)
			if p.unfit[v.Claim] != unfit[v.Claim] {
				p.Logger.Error("pods cannot use the volume of a claim", "claim", v.Claim.String(), "err", err)
			}
			continue
		}
		p.volumes[pv.Name] = pv
	}
	p.unfit = unfit
	for name := range gone {
		p.Catalog.Delete(Name, source.Key{Kind: resolve.KindVolume, Name: name})
		delete(p.volumes, name)
	}
}

func (p *Provider) showNotes() {
	gone := maps.Clone(p.notes)
	for _, c := range p.Controller.Claims() {
		n := note{text: p.unfit[c.Claim]}
		if c.Volume == nil {
			n = note{Note(c), c.Cause}
		}
		if n.text == "" {
			continue
		}
		delete(gone, c.Claim)
		if p.notes[c.Claim] != n {
			p.notes[c.Claim] = n
			p.Catalog.SetClaimNote(CatalogKey(c.Claim), n.text, n.cause)
		}
	}
	for key := range gone {
		delete(p.notes, key)
		p.Catalog.SetClaimNote(CatalogKey(key), "", state.Cause{})
	}
}

// CatalogKey converts a controller's key of a claim to the catalog's.
func CatalogKey(k controller.Key) source.Key {
	return source.Key{Kind: resolve.KindClaim, Namespace: k.Namespace, Name: k.Name}
}

// Note returns what a claim waits for, or "".
func Note(c controller.ClaimStatus) string {
	if c.Reason == "" && c.Call != "" {
		return c.Call + " is in flight"
	}
	return c.Reason
}
