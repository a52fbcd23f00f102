package localdriver

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// NodePublishVolume mounts a staged volume at the target path, or makes an inline volume and mounts
// it there (CSI 1.13 NodePublishVolume).
func (s *nodeServer) NodePublishVolume(ctx context.Context,
	req *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	d := s.driver
	u, release, err := d.beginCall(req, "target_path", req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	defer release()
	want := publication{ReadOnly: req.GetReadonly() || readerOnly(u.Mode), use: u}
	if req.GetVolumeContext()[paramEphemeral] == "true" {
		err = d.publishInline(ctx, req, want)
	} else {
		err = d.publishStaged(ctx, req, want)
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *Driver) publishStaged(ctx context.Context, req *csi.NodePublishVolumeRequest, want publication) error {
	v, err := d.mustVolume(req.GetVolumeId())
	if err != nil {
		return err
	}
	if reason := unsupported(v.Type, req.GetVolumeCapability()); reason != "" {
		return precondition("%s", reason)
	}
	a := d.store.attachment(v.ID)
	switch path := req.GetStagingTargetPath(); {
	case path == "":
		return precondition("staging_target_path is missing")
	case a.Stage == nil || a.Stage.Path != path:
		return precondition("volume %s is not staged at %s", v.ID, path)
	case a.Stage.Block != want.Block:
		return precondition("volume %s is staged for another access type", v.ID)
	}
	there, err := d.isStaged(ctx, v, *a.Stage)
	if err != nil {
		return err
	}
	if !there {
		return precondition("volume %s is no longer staged at %s", v.ID, a.Stage.Path)
	}
	return d.publishAt(ctx, a, target{path: req.GetTargetPath(), want: want, make: func() error {
		if !want.Block {
			return d.mounts.Bind(a.Stage.Path, req.GetTargetPath(), mount.BindOptions{
				ReadOnly: want.ReadOnly, Peer: req.GetVolumeContext()[paramPropagation] == "Bidirectional",
			})
		}
		dev, err := loopFor(d.store.dataPath(v.ID, v.Type), want.ReadOnly)
		if err != nil {
			return err
		}
		defer dev.Close()
		if err := dev.tune(v); err != nil {
			return err
		}
		return d.mounts.Bind(dev.path, req.GetTargetPath(), mount.BindOptions{ReadOnly: want.ReadOnly})
	}})
}

// target is a publication to make.
type target struct {
	path string
	want publication
	make func() error // mounts at path, which exists and is empty
}

// publishAt records and makes t, unless it exists or conflicts with others.
func (d *Driver) publishAt(ctx context.Context, a attachment, t target) error {
	if err := d.checkOthers(ctx, a, t); err != nil {
		return err
	}
	info, err := d.mounts.Look(ctx, t.path)
	if err != nil {
		return err
	}
	have, known := a.Targets[t.path]
	switch {
	case info.Mounted && known && have == t.want:
		return nil
	case info.Mounted && known:
		return refuse(codes.AlreadyExists, "volume %s is published at %s with other arguments", a.ID, t.path)
	case info.Mounted:
		return precondition("something else is mounted at %s", t.path)
	}
	a.Targets[t.path] = t.want
	if err := d.store.putAttachment(a); err != nil {
		return err
	}
	err = makeTarget(t.path, t.want.Block)
	if err == nil {
		err = t.make()
	}
	if err != nil {
		// Programs would write to a plain directory left behind as if it were the volume.
		err = errors.Join(err, d.removeTarget(context.WithoutCancel(ctx), t.path))
	}
	return err
}

// checkOthers returns FAILED_PRECONDITION if t conflicts with a publication elsewhere. Recorded
// publications that are no longer mounted do not count.
func (d *Driver) checkOthers(ctx context.Context, a attachment, t target) error {
	for path, other := range a.Targets {
		if path == t.path || !exclusive(other.Mode) && !exclusive(t.want.Mode) {
			continue
		}
		info, err := d.mounts.Look(ctx, path)
		if err != nil {
			return err
		}
		if info.Mounted {
			return precondition("volume %s is published at %s, and %s allows no other", a.ID, path, t.want.Mode)
		}
	}
	return nil
}

// makeTarget makes the directory, or the file for a device, to mount on. The CO makes its parent.
func makeTarget(path string, block bool) error {
	var err error
	if block {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			err = f.Close()
		}
	} else {
		err = os.Mkdir(path, 0o750)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return precondition("the parent directory of %s does not exist", path)
	}
	return err
}

// removeTarget unmounts path and removes the empty directory or file below.
func (d *Driver) removeTarget(ctx context.Context, path string) error {
	if err := d.mounts.Unmount(ctx, path); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() && info.Size() > 0 {
		return precondition("%s is not an empty file: it is left alone", path)
	}
	return os.Remove(path)
}

// NodeUnpublishVolume undoes NodePublishVolume, and deletes the data of an inline volume (CSI 1.13
// NodeUnpublishVolume).
func (s *nodeServer) NodeUnpublishVolume(ctx context.Context,
	req *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	d := s.driver
	if req.GetVolumeId() == "" {
		return nil, invalid("volume_id is missing")
	}
	if err := checkPath("target_path", req.GetTargetPath()); err != nil {
		return nil, err
	}
	release, err := d.locks.tryLock(lockVolume(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	defer release()
	v, ok, err := d.store.volume(req.GetVolumeId())
	switch {
	case err != nil:
		return nil, err
	case ok:
		err = d.unpublish(ctx, v, req.GetTargetPath())
	case ephemeralPattern.MatchString(req.GetVolumeId()):
		// The inline volume was deleted by a call whose answer was lost.
		err = d.checkUnmounted(ctx, req.GetVolumeId(), req.GetTargetPath())
	default:
		err = noVolume(req.GetVolumeId())
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (d *Driver) unpublish(ctx context.Context, v volume, path string) error {
	a := d.store.attachment(v.ID)
	if _, known := a.Targets[path]; !known {
		if err := d.checkUnmounted(ctx, v.ID, path); err != nil {
			return err
		}
	}
	if err := d.removeTarget(ctx, path); err != nil {
		return err
	}
	delete(a.Targets, path)
	if err := d.store.endUse(a); err != nil {
		return err
	}
	if v.Ephemeral && len(a.Targets) == 0 {
		return d.deleteVolume(ctx, v)
	}
	return nil
}
