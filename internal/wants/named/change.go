package named

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// changeable are the options that Change changes.
var changeable = [...]string{"gid", "mode", "reclaim", "size", "uid"}

// quantity returns a size as a user writes it.
func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

// unmade reports whether the storage of a volume is still to be made, so that its claim may ask for less.
func (p *Provider) unmade(v Volume) bool {
	if !v.made() {
		return false
	}
	c, _ := p.c.Claims.Claim(v.claimKey())
	return !c.Bound
}

// saysEachTime reports whether the volume's front end says with each use which volume it wants, as a line of fstab
// and a job of Nomad do. Docker and podman pass options once, when they create the volume.
func (v Volume) saysEachTime() bool { return v.FrontEnd != Docker }

// follow returns the options of a volume that exists once its front end asks for others.
func (p *Provider) follow(v Volume, by Options) Options {
	o := v.Options
	o.LimitBytes = by.LimitBytes
	if v.saysEachTime() {
		o.Owner, o.Delete = by.Owner, by.Delete
	}
	if o.SizeBytes = by.SizeBytes; v.saysEachTime() && !p.unmade(v) {
		o.SizeBytes = max(by.SizeBytes, v.Options.SizeBytes) // it has at least that
	}
	return o
}

// refuses returns why a volume that exists cannot have the options, or "".
func (p *Provider) refuses(v Volume, o Options) string {
	if o.SizeBytes < v.Options.SizeBytes && !v.saysEachTime() && !p.unmade(v) {
		return fmt.Sprintf("option size: the volume already has %s and cannot shrink", quantity(v.Options.SizeBytes))
	}
	will := p.follow(v, o)
	will.SizeBytes, will.LimitBytes = o.SizeBytes, o.LimitBytes
	differ, set := differences(o, will)
	if len(differ) == 0 {
		return ""
	}
	why := "it exists already with other options: " + strings.Join(differ, ", ") + "; leave them out, "
	if len(set) == len(differ) {
		return why + "or change the volume: csi-volmgr volume set " + v.Name + " " + strings.Join(set, " ")
	}
	data := "which keeps its data"
	if v.Options.Delete {
		data = "which deletes its data"
	}
	return why + "or remove the volume first, " + data
}

// differences returns the options that are asked for and not what a volume has, and those that Change can set.
func differences(asked, has Options) (differ, set []string) {
	a, h := asked.words(), has.words()
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if a[k] == h[k] {
			continue
		}
		differ = append(differ, fmt.Sprintf("%s (found %q, the volume has %q)", k, a[k], h[k]))
		if a[k] != "" && slices.Contains(changeable[:], k) {
			set = append(set, k+"="+a[k])
		}
	}
	return differ, set
}

// words returns the options as a user writes them, "" for those that are not set. Every field of Options is in it.
func (o Options) words() map[string]string {
	w := map[string]string{
		"namespace": o.Namespace, "claim": o.Claim, "class": o.Class, "accessMode": string(o.AccessMode),
		"fsType": o.FSType, "mountOptions": strings.Join(o.MountOptions, ","), "driver": o.Driver, "handle": o.Handle,
		"subdir": o.Subdir, "reclaim": string(corev1.PersistentVolumeReclaimRetain), "uid": "", "gid": "", "mode": "",
		"size": quantity(o.SizeBytes), "capacity_max": quantity(o.LimitBytes), "attribute.*": "",
	}
	if o.Delete {
		w["reclaim"] = string(corev1.PersistentVolumeReclaimDelete)
	}
	if o.Existing {
		w["claim"] += " of another source"
	}
	if o.Owner.UID != nil {
		w["uid"] = fmt.Sprint(*o.Owner.UID)
	}
	if o.Owner.GID != nil {
		w["gid"] = fmt.Sprint(*o.Owner.GID)
	}
	if o.Owner.Mode != nil {
		w["mode"] = fmt.Sprintf("%04o", *o.Owner.Mode)
	}
	if len(o.Attributes) > 0 {
		w["attribute.*"] = fmt.Sprint(o.Attributes)
	}
	return w
}

// applyReclaim makes the storage of a volume follow its new reclaim policy. The row is written after it, so that an
// interrupted change is made again.
func (p *Provider) applyReclaim(ctx context.Context, old, next Volume) error {
	if old.Options.Delete == next.Options.Delete || !next.made() {
		return nil
	}
	if err := p.c.Claims.Reclaim(ctx, next.claimKey(), next.Options.Delete); err != nil {
		return fmt.Errorf("option reclaim: %w", err)
	}
	return nil
}

// Change changes the size, owner, mode and reclaim policy of a volume, as far as options has them. A mounted directory
// gets its owner and mode at once.
func (p *Provider) Change(ctx context.Context, name string, options map[string]string) error {
	fail := func(err error) error { return fmt.Errorf("change volume %s: %w", name, err) }
	r, err := p.find(ctx, name)
	if err != nil {
		return err
	}
	release, err := r.lock(ctx)
	if err != nil {
		return fail(err)
	}
	defer release()
	v := p.volume(r)
	if err := p.checkPresent(r); err != nil {
		return fail(err)
	}
	if v.From != "" {
		return fail(fmt.Errorf("%w: it is being restored from %s", ErrConflict, v.From))
	}
	next := v
	if next.Options, err = v.changed(options); err != nil {
		return fail(err)
	}
	if err := p.checkChange(v, next.Options); err != nil {
		return fail(err)
	}
	if _, given := options["reclaim"]; given && next.made() { // also where volume set pvc has changed the storage alone
		if err := p.c.Claims.Reclaim(ctx, next.claimKey(), next.Options.Delete); err != nil {
			return fail(fmt.Errorf("option reclaim: %w", err))
		}
	}
	if err := p.write(ctx, r, next); err != nil {
		return fail(err)
	}
	if err := p.c.Catalog.Apply(Name, source.Update{Put: next.claimObjects(), Checked: true}); err != nil {
		return fail(err)
	}
	if v.Path == "" || reflect.DeepEqual(v.Options.Owner, next.Options.Owner) {
		return nil
	}
	if _, err := p.c.Mounts.Give(ctx, next.podKey(), podContainer, p.owner(next)); err != nil {
		return fail(fmt.Errorf("it is stored, and holds from the next mount: %w", err))
	}
	return nil
}

// changed returns the volume's options with the given ones.
func (v Volume) changed(given map[string]string) (Options, error) {
	p := parser{given: given, at: place{name: v.Name, was: &v.Options}}
	o := v.Options
	for _, k := range slices.Sorted(maps.Keys(given)) {
		switch k {
		case "size":
			o.SizeBytes = p.size()
		case "reclaim":
			o.Delete = p.reclaim()
		case "uid":
			o.Owner.UID = p.id(k)
		case "gid":
			o.Owner.GID = p.id(k)
		case "mode":
			o.Owner.Mode = p.mode()
		default:
			p.wrong = append(p.wrong, fmt.Sprintf("option %s cannot be changed; there are: %s", k,
				strings.Join(changeable[:], ", ")))
		}
	}
	if len(given) == 0 {
		p.wrong = append(p.wrong, "found no option, want one of: "+strings.Join(changeable[:], ", "))
	}
	if len(p.wrong) > 0 {
		return o, fmt.Errorf("%w: %s", ErrInvalid, strings.Join(p.wrong, "; "))
	}
	return o, nil
}

// checkChange returns an error if the volume cannot get the options.
func (p *Provider) checkChange(v Volume, o Options) error {
	switch grows := o.SizeBytes > v.Options.SizeBytes; {
	case !v.made() && (o.SizeBytes != v.Options.SizeBytes || o.Delete != v.Options.Delete):
		return fmt.Errorf("%w: options size and reclaim: its storage was not made for it: change claim %s/%s, or its "+
			"PersistentVolume, where they are from", ErrConflict, o.Namespace, o.Claim)
	case o.SizeBytes != v.Options.SizeBytes && checkLimit(o) != "":
		return fmt.Errorf("%w: %s", ErrConflict, checkLimit(o))
	case p.unmade(v):
		return nil
	case o.SizeBytes < v.Options.SizeBytes:
		return fmt.Errorf("%w: option size: the volume already has %s and cannot shrink", ErrConflict,
			quantity(v.Options.SizeBytes))
	case grows && !p.grows(v):
		return fmt.Errorf("%w: option size: its StorageClass has no allowVolumeExpansion: true; apply the class with it, "+
			"if its driver can do that", ErrConflict)
	}
	return nil
}

// grows reports whether the class of the volume lets it grow.
func (p *Provider) grows(v Volume) bool {
	claim, isClaim := v.claimObjects()[0].(*corev1.PersistentVolumeClaim)
	if !isClaim {
		return false
	}
	class := p.c.Catalog.ClassOf(claim)
	return class != nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}
