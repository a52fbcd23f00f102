// Package made provides the volumes that the controller makes: it tells the controller of
// the catalog's claims, and the catalog of the controller's volumes.
//
// Owns: which claims the controller makes volumes for, what a claim's volume holds at
// first, and how a made volume looks as a PersistentVolume.
//
// Does not: call drivers or keep records; the controller does.
package made

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// Name is the catalog's name of this provider.
const Name = "controller"

// OwnClasses are, by provider, what makes of a claim's class the one that holds for it.
type OwnClasses map[string]func(*storagev1.StorageClass, *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error)

// Config is what a Provider needs; every field is required but OwnClass.
type Config struct {
	Catalog    *source.Catalog
	Controller *controller.Controller
	// Remote names the provider of a cluster's claims, which the cluster binds.
	Remote string
	// OwnClass returns the class as it holds for a claim of a provider whose claims say
	// themselves what their class leaves open.
	OwnClass OwnClasses
	// Translate lists the in-tree plugins whose classes are translated ([translate.Kinds]).
	Translate []string
	// Shown is called when the catalog has what the controller showed.
	Shown  func()
	Logger *slog.Logger
}

// Provider ties the catalog's claims, snapshots and group snapshots to the controller's. Changed may be
// called by any goroutine, Run by one.
type Provider struct {
	Config
	syncing sync.Mutex // held while the controller hears how a claim or a snapshot stands
	// snapshots has, by key, the source claim of each VolumeSnapshot of the catalog. Guarded
	// by syncing.
	snapshots map[source.Key]string
	// groups has, by key, the content that each VolumeGroupSnapshot of the catalog names, "" for none.
	// Guarded by syncing.
	groups map[source.Key]string
	// clones has, by key, the source of each claim that is to be a clone of another. Guarded by syncing.
	clones map[source.Key]source.Key

	// What the catalog has from here; of the goroutine of Run.
	volumes map[string]*corev1.PersistentVolume
	notes   map[controller.Key]string
}

// New returns a provider that has shown nothing.
func New(c Config) *Provider {
	return &Provider{
		Config: c, snapshots: map[source.Key]string{}, groups: map[source.Key]string{},
		clones:  map[source.Key]source.Key{},
		volumes: map[string]*corev1.PersistentVolume{}, notes: map[controller.Key]string{},
	}
}

// class tells the controller how every claim stands: a class has changed, and it may be
// the default one.
func (p *Provider) class() {
	for _, claim := range p.Catalog.Claims() {
		p.claim(source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name})
	}
}

// claim tells the controller how a claim of the catalog stands. One call at a time looks it
// up and tells it, so that the controller never hears the older state last.
func (p *Provider) claim(key source.Key) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	delete(p.clones, key)
	claim, ok := p.Catalog.Get(key).(*corev1.PersistentVolumeClaim)
	if !ok {
		p.Controller.RemoveClaim(ClaimKey(key))
		return
	}
	class := p.Catalog.ClassOf(claim)
	chosen := p.Catalog.Binding(key).Volume != ""
	if p.Catalog.Provider(key) == p.Remote || chosen || !isOurs(claim, class) { // the cluster binds its own claims
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
	c, err := Asked(claim, class, p.Translate)
	if err != nil {
		p.Logger.Error("storage class of an in-tree plugin cannot be translated; its claims wait", "class", class.Name, "err",
			err)
	}
	p.noteClone(key, &c)
	c.Attributes = attributes(claim, func(name string) *storagev1.VolumeAttributesClass {
		obj := p.Catalog.Get(source.Key{Kind: resolve.KindAttributesClass, Name: name})
		class, _ := obj.(*storagev1.VolumeAttributesClass)
		return class
	})
	p.Controller.SetClaim(c)
}

// Makes reports whether the controller has made a volume for the claim, or may have.
func (p *Provider) Makes(claim source.Key) bool {
	c, known := p.Controller.Claim(ClaimKey(claim))
	return known && (c.Volume != nil || c.Call != "" || c.Retry.Attempts > 0 || c.Phase == controller.Deleting)
}

// Asked returns what a claim of a class asks of the controller. class is nil where it is
// not there; kinds are [Config.Translate]. An error says that the class could not be
// translated to its CSI driver, and the claim waits for a driver of the plugin's name.
func Asked(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
	kinds []string,
) (controller.Claim, error) {
	c := controller.Claim{
		Key: controller.Key{Namespace: claim.Namespace, Name: claim.Name}, UID: string(claim.UID),
		Mode:      ModeOf(claim.Spec.VolumeMode),
		SizeBytes: claim.Spec.Resources.Requests.Storage().Value(), LimitBytes: claim.Spec.Resources.Limits.Storage().Value(),
		AccessModes: AccessModes(claim.Spec.AccessModes), Source: dataSource(claim),
	}
	if f, bad := resolve.Unmade(claim); bad {
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
	return c, nil
}

// topologies are the terms of allowedTopologies. Of two expressions for one key of a
// term both have to hold.
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

// Run shows the catalog what the controller makes, until ctx ends: its volumes as
// PersistentVolumes, and what a claim waits for as the claim's note.
func (p *Provider) Run(ctx context.Context) error {
	select {
	case <-p.Controller.Loaded():
	case <-ctx.Done():
		return nil
	}
	for {
		changed := p.Controller.Changed()
		if err := p.Show(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Show has the catalog show what the controller does now. It is for one goroutine, and for
// when the controller has loaded its records.
func (p *Provider) Show() error {
	if err := p.showVolumes(); err != nil {
		return err
	}
	p.showNotes()
	p.Catalog.Synced(Name)
	p.Shown()
	return nil
}

func (p *Provider) showVolumes() error {
	gone := maps.Clone(p.volumes)
	for _, v := range p.Controller.Volumes() {
		pv := persistentVolume(v)
		delete(gone, pv.Name)
		if old, ok := p.volumes[pv.Name]; ok && equality.Semantic.DeepEqual(old, pv) {
			continue
		}
		if err := p.Catalog.Put(Name, pv); err != nil {
			return fmt.Errorf("show volume %s: %w", pv.Name, err)
		}
		p.volumes[pv.Name] = pv
	}
	for name := range gone {
		p.Catalog.Delete(Name, source.Key{Kind: resolve.KindVolume, Name: name})
		delete(p.volumes, name)
	}
	return nil
}

func (p *Provider) showNotes() {
	gone := maps.Clone(p.notes)
	for _, c := range p.Controller.Claims() {
		note := Note(c)
		if c.Volume != nil || note == "" {
			continue
		}
		delete(gone, c.Claim)
		if p.notes[c.Claim] != note {
			p.notes[c.Claim] = note
			p.Catalog.SetClaimNote(CatalogKey(c.Claim), note)
		}
	}
	for key := range gone {
		delete(p.notes, key)
		p.Catalog.SetClaimNote(CatalogKey(key), "")
	}
}

// CatalogKey returns the catalog's key of a claim.
func CatalogKey(k controller.Key) source.Key {
	return source.Key{Kind: resolve.KindClaim, Namespace: k.Namespace, Name: k.Name}
}

// Note says what a claim waits for; "" for nothing.
func Note(c controller.ClaimStatus) string {
	if c.Reason == "" && c.Call != "" {
		return c.Call + " is in flight"
	}
	return c.Reason
}
