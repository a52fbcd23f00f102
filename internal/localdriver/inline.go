package localdriver

import (
	"cmp"
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/resource"
)

// publishInline makes the inline volume of a pod if it does not exist, and mounts it at the target,
// without staging. Its attributes are "type" and "size", a Kubernetes quantity (default 1Gi).
func (d *Driver) publishInline(ctx context.Context, req *csi.NodePublishVolumeRequest, want publication) error {
	v, err := d.inlineVolume(req, want)
	if err != nil {
		return err
	}
	if v, err = d.makeData(ctx, v); err != nil {
		return err
	}
	path := req.GetTargetPath()
	return d.publishAt(ctx, d.store.attachment(v.ID), target{path: path, want: want, make: func() error {
		if v.Type == typeDirectory {
			return d.bindData(v, path, want.ReadOnly)
		}
		u := want.use
		if want.ReadOnly {
			u.Flags = strings.TrimPrefix(u.Flags+",ro", ",")
		}
		return d.mountImage(ctx, v, path, u)
	}})
}

// inlineVolume returns the record of an inline volume, and makes it the first time.
func (d *Driver) inlineVolume(req *csi.NodePublishVolumeRequest, want publication) (volume, error) {
	id := req.GetVolumeId()
	if len(id) > maxName {
		return volume{}, invalid("volume_id has %d bytes, more than %d", len(id), maxName)
	}
	if idPattern.MatchString(id) { // its data would have the path of another volume's or a snapshot's
		return volume{}, invalid("volume_id %s has the form of this driver's own ids", id)
	}
	if want.Block {
		return volume{}, invalid("an inline volume is never a raw block device")
	}
	kind, err := parseType(req.GetVolumeContext(), paramSize)
	if err != nil {
		return volume{}, err
	}
	if reason := unsupported(kind, req.GetVolumeCapability()); reason != "" {
		return volume{}, precondition("%s", reason)
	}
	v, ok, err := d.store.volume(id)
	switch {
	case err != nil:
		return volume{}, err
	case ok && !v.Ephemeral:
		return volume{}, invalid("volume %s is not an inline volume", id)
	case ok && v.Phase == phaseDeleting:
		return volume{}, precondition("inline volume %s is being removed: NodeUnpublishVolume comes first", id)
	case ok:
		return v, nil
	}
	least := int64(0)
	if kind == typeImage {
		least, _ = minBytes(cmp.Or(want.FSType, defaultFS()))
	}
	size := resource.MustParse("0")
	if q := req.GetVolumeContext()[paramSize]; q != "" {
		if size, err = resource.ParseQuantity(q); err != nil || size.Value() <= 0 {
			return volume{}, invalid("attribute size %q: not a positive quantity", q)
		}
	}
	bytes, err := sizeFor(&csi.CapacityRange{RequiredBytes: size.Value()}, least)
	if err != nil {
		return volume{}, err
	}
	return d.reserve(volume{ID: id, Type: kind, Phase: phaseReady, FSType: want.FSType, Ephemeral: true}, bytes)
}
