package localdriver

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// maxName is the maximum length of a name or id in bytes (CSI 1.13, "Size Limits").
const maxName = 128

// createSpec is a checked CreateVolume request.
type createSpec struct {
	name        string
	kind        string
	fsType      string // "" if the request has none
	mount       bool   // a file system is requested
	sizes       *csi.CapacityRange
	source      *source
	readAheadKB int // 0: the kernel's default
}

// CreateVolume makes a volume or finds the one with that name (CSI 1.13 CreateVolume). It answers
// ALREADY_EXISTS if that one is incompatible, NOT_FOUND or INVALID_ARGUMENT because of the source,
// OUT_OF_RANGE for an impossible size, and RESOURCE_EXHAUSTED if there is no space or the topology
// is not this node's.
func (s *controllerServer) CreateVolume(
	ctx context.Context, req *csi.CreateVolumeRequest,
) (*csi.CreateVolumeResponse, error) {
	d := s.driver
	w, err := d.parseCreate(req)
	if err != nil {
		return nil, err
	}
	release, err := d.locks.tryLock(append(w.source.locks(), lockVolumeName(w.name))...)
	if err != nil {
		return nil, err
	}
	defer release()
	v, found, err := d.store.volumeNamed(w.name)
	if err != nil {
		return nil, err
	}
	if !found {
		v = volume{ID: newID("lv", w.name)}
	} else if err := w.matches(v); err != nil {
		return nil, err
	}
	releaseID, err := d.locks.tryLock(lockVolume(v.ID))
	if err != nil {
		return nil, err
	}
	defer releaseID()
	if v.Phase == phaseReady {
		v, err = d.makeData(ctx, v)
	} else {
		v, err = d.makeVolume(ctx, w, v.ID)
	}
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: d.describe(v)}, nil
}

// makeVolume records volume id and makes its data. It plans a copy again that an earlier call did not
// finish, because the source may have changed since. After an error nothing of the volume is left: the
// orchestrator may not repeat the call, and does not know the id.
func (d *Driver) makeVolume(ctx context.Context, w createSpec, id string) (volume, error) {
	v, err := d.plan(w, id)
	if err == nil {
		v, err = d.reserve(v, v.CapacityBytes)
	}
	if err == nil {
		v, err = d.makeData(ctx, v)
	}
	if err != nil {
		return v, errors.Join(err, d.removeUnfinished(context.WithoutCancel(ctx), id))
	}
	return v, nil
}

// removeUnfinished deletes a volume that CreateVolume has not finished, if it has a record.
func (d *Driver) removeUnfinished(ctx context.Context, id string) error {
	v, known, err := d.store.volume(id)
	if err != nil || !known {
		return err
	}
	return d.deleteVolume(ctx, v)
}

// parseCreate checks everything in a request that does not depend on other volumes.
func (d *Driver) parseCreate(req *csi.CreateVolumeRequest) (createSpec, error) {
	if req.GetName() == "" || len(req.GetVolumeCapabilities()) == 0 {
		return createSpec{}, invalid("name or volume_capabilities is missing")
	}
	if len(req.GetName()) > maxName {
		return createSpec{}, invalid("the name has %d bytes, more than %d", len(req.GetName()), maxName)
	}
	kind, err := parseType(req.GetParameters())
	if err != nil {
		return createSpec{}, err
	}
	w := createSpec{name: req.GetName(), kind: kind, sizes: req.GetCapacityRange()}
	if w.readAheadKB, err = parseMutable(req.GetMutableParameters(), kind); err != nil {
		return createSpec{}, err
	}
	for _, c := range req.GetVolumeCapabilities() {
		u, err := parseUse(c)
		if err != nil {
			return createSpec{}, err
		}
		if reason := unsupported(kind, c); reason != "" {
			return createSpec{}, invalid("%s", reason)
		}
		w.mount = w.mount || !u.Block
		if u.FSType != "" && kind == typeImage {
			w.fsType = u.FSType
		}
	}
	requisite := req.GetAccessibilityRequirements().GetRequisite()
	if len(requisite) > 0 && !slices.ContainsFunc(requisite, d.matches) {
		return createSpec{}, refuse(codes.ResourceExhausted, "none of the requisite topologies contains node %s", d.nodeID)
	}
	w.source, err = parseSource(req.GetVolumeContentSource())
	return w, err
}

func parseSource(s *csi.VolumeContentSource) (*source, error) {
	switch {
	case s == nil:
		return nil, nil
	case s.GetSnapshot().GetSnapshotId() != "":
		return &source{Snapshot: s.GetSnapshot().GetSnapshotId()}, nil
	case s.GetVolume().GetVolumeId() != "":
		return &source{Volume: s.GetVolume().GetVolumeId()}, nil
	}
	return nil, invalid("volume_content_source names neither a snapshot nor a volume")
}

// locks returns the locks to hold while s is copied.
func (s *source) locks() []string {
	switch {
	case s == nil:
		return nil
	case s.Snapshot != "":
		return []string{lockSnapshot(s.Snapshot)}
	}
	return []string{lockVolume(s.Volume)}
}

// matches returns ALREADY_EXISTS if v does not match the request.
func (w createSpec) matches(v volume) error {
	same := v.Type == w.kind && (w.fsType == "" || v.FSType == w.fsType) &&
		(w.source == nil) == (v.Source == nil) && (w.source == nil || *w.source == *v.Source)
	limit := w.sizes.GetLimitBytes()
	switch {
	case v.Phase == phaseDeleting:
		return refuse(codes.Aborted, "volume %s of that name is being deleted", v.ID)
	case !same:
		return refuse(codes.AlreadyExists, "volume %s of that name has another type, file system or source", v.ID)
	case v.CapacityBytes < w.sizes.GetRequiredBytes() || (limit > 0 && v.CapacityBytes > limit):
		return refuse(codes.AlreadyExists, "volume %s of that name has %d bytes", v.ID, v.CapacityBytes)
	}
	return nil
}

// plan returns the record of the volume to make for w.
func (d *Driver) plan(w createSpec, id string) (volume, error) {
	v := volume{
		ID: id, Name: w.name, Type: w.kind, Phase: phaseReady, FSType: w.fsType, Source: w.source,
		ReadAheadKB: w.readAheadKB,
	}
	if w.source == nil {
		least := int64(0)
		if w.kind == typeImage {
			least = sizeUnit
			if n, ok := minBytes(cmp.Or(w.fsType, defaultFS())); ok && w.mount {
				least = n
			}
		}
		var err error
		v.CapacityBytes, err = sizeFor(w.sizes, least)
		return v, err
	}
	from, err := d.original(*w.source)
	if err != nil {
		return volume{}, err
	}
	if from.Type != w.kind {
		return volume{}, invalid("the source has type %s, but the volume has type %s", from.Type, w.kind)
	}
	if from.Formatted != "" && w.fsType != "" && w.fsType != from.Formatted {
		return volume{}, invalid("the source is formatted as %s, but the volume asks for %s", from.Formatted, w.fsType)
	}
	v.Phase = phaseCreating
	v.Formatting, v.Formatted, v.FSBytes = from.Formatting, from.Formatted, from.FSBytes
	sizes := &csi.CapacityRange{RequiredBytes: w.sizes.GetRequiredBytes(), LimitBytes: w.sizes.GetLimitBytes()}
	if sizes.RequiredBytes == 0 {
		sizes.RequiredBytes = from.CapacityBytes
	}
	if limit := sizes.GetLimitBytes(); limit > 0 && from.CapacityBytes > limit {
		return volume{}, refuse(codes.OutOfRange, "the source has %d bytes, the limit is %d", from.CapacityBytes, limit)
	}
	v.CapacityBytes, err = sizeFor(sizes, from.CapacityBytes)
	return v, err
}

// original returns what a source refers to as a volume record. Its ID and Type say where the data
// is.
func (d *Driver) original(s source) (volume, error) {
	if s.Volume != "" {
		v, err := d.mustVolume(s.Volume)
		if err == nil && v.Ephemeral {
			return volume{}, invalid("volume %s is an inline volume of a pod", s.Volume)
		}
		return v, err
	}
	n, err := d.readySnapshot(s.Snapshot)
	if err != nil {
		return volume{}, err
	}
	return volume{
		ID: n.ID, Type: n.Type, Phase: n.Phase, CapacityBytes: n.CapacityBytes,
		FSType: n.FSType, Formatting: n.Formatting, Formatted: n.Formatted, FSBytes: n.FSBytes,
	}, nil
}

// makeData makes the data of a recorded volume. It can be repeated.
func (d *Driver) makeData(ctx context.Context, v volume) (volume, error) {
	path := d.store.dataPath(v.ID, v.Type)
	if v.Phase == phaseCreating {
		from, err := d.original(*v.Source)
		if err != nil {
			return v, err
		}
		if err := d.copyData(ctx, from, v.ID); err != nil {
			return v, err
		}
		if v.Type == typeImage {
			if err := growImage(path, v.CapacityBytes); err != nil {
				return v, err
			}
		}
		v.Phase = phaseReady
		return v, d.store.putVolume(v)
	}
	if v.Type == typeImage {
		return v, makeImage(path, v.CapacityBytes)
	}
	return v, makeDirectory(path)
}

// makeDirectory makes the directory of a volume, durably and with a mode that is independent of the
// umask.
func makeDirectory(path string) error {
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o755); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
