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

// copyOf is a copy to make: the bytes of from become those of the volume or snapshot id.
type copyOf struct {
	from volume
	id   string
}

// copyData copies the bytes of from, which the caller has locked, to those of
// the volume or snapshot id, durably.
func (d *Driver) copyData(ctx context.Context, from volume, id string) error {
	return d.makeCopies(ctx, []copyOf{{from: from, id: id}})
}

// makeCopies makes copies of volumes, which the caller has locked, durably and as all of them are at
// one moment, or leaves none. A directory that is in use is copied while it changes. No volume uses
// the copies yet: what those that were cut off have left, finished or not, is of another moment and
// is replaced.
func (d *Driver) makeCopies(ctx context.Context, copies []copyOf) error {
	for _, c := range copies {
		if err := d.removeData(ctx, c.id, c.from.Type); err != nil {
			return err
		}
	}
	dir := filepath.Join(d.dir, dataDir)
	err := d.fillParts(ctx, copies)
	if err == nil {
		err = syncFS(dir)
	}
	for _, c := range copies {
		if err == nil {
			target := d.store.dataPath(c.id, c.from.Type)
			err = os.Rename(target+partSuffix, target)
		}
	}
	if err == nil {
		return syncDir(dir)
	}
	for _, c := range copies {
		err = errors.Join(err, d.removeData(context.WithoutCancel(ctx), c.id, c.from.Type))
	}
	return err
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

// copyDirectory copies a volume of type directory, file by file.
func (d *Driver) copyDirectory(ctx context.Context, c copyOf) error {
	target := d.store.dataPath(c.id, c.from.Type) + partSuffix
	if err := copyTree(ctx, d.store.dataPath(c.from.ID, c.from.Type), target); err != nil {
		return fmt.Errorf("copy %s to %s: %w", c.from.ID, c.id, err)
	}
	return nil
}

// fillParts copies what copies are of to the files and directories that are to become them: first
// the images that may be written to meanwhile, since the others stay as they are.
func (d *Driver) fillParts(ctx context.Context, copies []copyOf) (err error) {
	var moving, still []part
	defer func() {
		for _, p := range append(moving, still...) {
			err = errors.Join(err, p.close())
		}
	}()
	for _, c := range copies {
		if c.from.Type != typeImage {
			continue
		}
		p, inUse, err := d.openPart(ctx, c)
		if err != nil {
			return err
		}
		if inUse {
			moving = append(moving, p)
		} else {
			still = append(still, p)
		}
	}
	if err := d.copyMoving(ctx, moving); err != nil {
		return err
	}
	for _, p := range still {
		if err == nil && !p.cloned {
			err = p.fill(ctx)
		}
	}
	for _, c := range copies {
		if err == nil && c.from.Type == typeDirectory {
			err = d.copyDirectory(ctx, c)
		}
	}
	return err
}

// part is the copy of an image that is being made.
type part struct {
	copyOf
	source, target *os.File
	// cloned: the target is a clone of the source, as it was at one moment, so the file system can reflink.
	cloned bool
}

// openPart makes the file that is to become the copy of an image, clones the image to it if the file system
// can, and reports whether the image is in use.
func (d *Driver) openPart(ctx context.Context, c copyOf) (p part, inUse bool, err error) {
	if err := d.flush(ctx, c.from); err != nil {
		return p, false, err
	}
	image := d.store.dataPath(c.from.ID, c.from.Type)
	if inUse, err = isAttached(image); err != nil {
		return p, false, err
	}
	p = part{copyOf: c}
	if p.source, err = os.Open(image); err != nil {
		return p, false, noData(c.from.ID, err)
	}
	path := d.store.dataPath(c.id, c.from.Type) + partSuffix
	p.target, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return p, false, errors.Join(p.failed(err), p.source.Close())
	}
	if p.cloned, err = reflink(p.source, p.target); err != nil {
		return p, false, errors.Join(p.failed(err), p.close())
	}
	return p, inUse, nil
}

func (p part) close() error { return errors.Join(p.source.Close(), p.target.Close()) }

func (p part) failed(err error) error { return fmt.Errorf("copy %s to %s: %w", p.from.ID, p.id, err) }

// copyMoving copies images that are in use, as all of them are at one moment. A clone is of one
// moment; more of them, and copies that take time, need file systems that are held still.
func (d *Driver) copyMoving(ctx context.Context, parts []part) error {
	if len(parts) == 0 || len(parts) == 1 && parts[0].cloned {
		return nil
	}
	volumes := make([]volume, 0, len(parts))
	for _, p := range parts {
		volumes = append(volumes, p.from)
		if err := p.target.Truncate(0); err != nil { // a clone of another moment; dropping it takes time
			return p.failed(err)
		}
	}
	err := d.whileStill(ctx, volumes, func(ctx context.Context) error {
		for _, p := range parts {
			if err := p.fill(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !parts[0].cloned {
		return fmt.Errorf("%s is on a file system without reflink, so the copy takes time, in which the volume is held "+
			"still; the driver's state directory belongs on xfs or btrfs: %w", d.dir, err)
	}
	return err
}

// fill copies an image that does not change.
func (p part) fill(ctx context.Context) error {
	if !p.cloned {
		if err := copySparse(ctx, p.source, p.target); err != nil {
			return p.failed(err)
		}
		return nil
	}
	again, err := reflink(p.source, p.target)
	if err == nil && !again {
		err = errors.New("the file system that has just cloned it does not clone it again")
	}
	if err != nil {
		return p.failed(err)
	}
	return nil
}
