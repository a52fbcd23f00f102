package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// partSuffix marks a copy that is not finished.
const partSuffix = ".part"

// copyData copies the bytes of from, which the caller has locked, to those of
// the volume or snapshot id, durably. No volume uses those yet: what a copy that
// was cut off has left, finished or not, is of another moment and is replaced.
func (d *Driver) copyData(ctx context.Context, from volume, id string) error {
	source, target := d.store.dataPath(from.ID, from.Type), d.store.dataPath(id, from.Type)
	part := target + partSuffix
	if err := d.removeData(ctx, id, from.Type); err != nil {
		return err
	}
	var err error
	if from.Type == typeImage {
		err = d.copyImage(ctx, from, part)
	} else {
		err = copyTree(ctx, source, part)
	}
	if err == nil {
		err = syncFS(filepath.Dir(part))
	}
	if err == nil {
		err = os.Rename(part, target)
	}
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", from.ID, id, errors.Join(err,
			d.mounts.RemoveTree(context.WithoutCancel(ctx), filepath.Dir(part), filepath.Base(part))))
	}
	return syncDir(filepath.Dir(target))
}

// removeData removes the bytes of a volume or snapshot, and of a copy that was
// to become them.
func (d *Driver) removeData(ctx context.Context, id, kind string) error {
	path := d.store.dataPath(id, kind)
	for _, name := range []string{filepath.Base(path) + partSuffix, filepath.Base(path)} {
		if err := d.mounts.RemoveTree(ctx, filepath.Dir(path), name); err != nil {
			return err
		}
	}
	return nil
}

// copyImage copies the image of from to the new file at path, as it is at one moment.
func (d *Driver) copyImage(ctx context.Context, from volume, path string) (err error) {
	source, err := os.Open(d.store.dataPath(from.ID, from.Type))
	if err != nil {
		return noData(from.ID, err)
	}
	defer source.Close()
	target, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	a := d.store.attachment(from.ID)
	mounted, err := d.stagedFS(ctx, a)
	if err != nil {
		return err
	}
	if mounted {
		// What programs have written but the file system has not, belongs to the copy.
		if err := syncFS(a.Stage.Path); err != nil {
			return err
		}
	}
	if ok, err := reflink(source, target); ok || err != nil {
		return err
	}
	thaw, err := d.holdStill(a, mounted, source.Name())
	if err != nil {
		return err
	}
	if err := copySparse(ctx, source, target); err != nil {
		return errors.Join(err, thaw())
	}
	return thaw()
}

// stagedFS reports whether a shows a file system of an image mounted where we can reach it.
func (d *Driver) stagedFS(ctx context.Context, a attachment) (bool, error) {
	if a.Stage == nil || a.Stage.Block {
		return false, nil
	}
	info, err := d.mounts.Look(ctx, a.Stage.Path)
	return info.Mounted, err
}

// holdStill stops the writes to an image for a copy that takes time, and
// returns what resumes them. An image that is not attached is still anyway.
func (d *Driver) holdStill(a attachment, mounted bool, path string) (resume func() error, err error) {
	devs, err := findLoops(path)
	closeLoops(devs)
	switch {
	case err != nil:
		return nil, err
	case len(devs) == 0:
		return func() error { return nil }, nil
	case !mounted:
		return nil, precondition("volume %s is in use as a raw block device, and the file system below %s cannot reflink: "+
			"no copy of one moment is possible", a.ID, d.dir)
	}
	a.Frozen = true
	if err := d.store.putAttachment(a); err != nil {
		return nil, err
	}
	err = freeze(a.Stage.Path)
	if errors.Is(err, unix.EBUSY) { // the orchestrator has frozen it, and thaws it
		a.Frozen = false
		return func() error { return stillFrozen(a.Stage.Path, a.ID) }, d.store.putAttachment(a)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("freeze %s: %w", a.Stage.Path, err), d.thawStage(a))
	}
	return func() error { return d.thawStage(a) }, nil
}

// stillFrozen fails where another program's freeze has ended: a copy that was made meanwhile is of
// no one moment.
func stillFrozen(path, volume string) error {
	err := freeze(path)
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	if err == nil {
		err = thaw(path)
	}
	if err != nil {
		return fmt.Errorf("see whether %s is frozen yet: %w", path, err)
	}
	return precondition("volume %s was thawed while it was copied: no copy of one moment was made", volume)
}

// thawStage ends the freeze that a announces.
func (d *Driver) thawStage(a attachment) error {
	if a.Stage != nil {
		if err := thaw(a.Stage.Path); err != nil && !errors.Is(err, errNotExist) {
			return fmt.Errorf("thaw %s: %w", a.Stage.Path, err)
		}
	}
	a.Frozen = false
	return d.store.putAttachment(a)
}
