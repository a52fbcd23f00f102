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
	c := copyOf{from: from, id: id}
	return d.makeCopies(ctx, []copyOf{c}, func() error {
		if from.Type == typeImage {
			return d.copyImage(ctx, c)
		}
		return d.copyDirectory(ctx, c)
	})
}

// copyTogether copies the bytes of volumes, which the caller has locked, as all of them are at one moment,
// durably. Even where reflink makes each copy at once, it makes them one after the other, so all are held
// still until the last one is made.
func (d *Driver) copyTogether(ctx context.Context, copies []copyOf) error {
	return d.makeCopies(ctx, copies, func() error {
		resume, err := d.holdAll(ctx, copies)
		if err != nil {
			return err
		}
		for _, c := range copies {
			if err == nil {
				err = d.copyStill(ctx, c)
			}
		}
		return errors.Join(err, resume())
	})
}

// makeCopies makes copies, whose parts write makes, or leaves none. No volume uses them yet: what
// those that were cut off have left, finished or not, is of another moment and is replaced.
func (d *Driver) makeCopies(ctx context.Context, copies []copyOf, write func() error) error {
	for _, c := range copies {
		if err := d.removeData(ctx, c.id, c.from.Type); err != nil {
			return err
		}
	}
	dir := filepath.Join(d.dir, dataDir)
	err := write()
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

// copyImage copies an image, as it is at one moment.
func (d *Driver) copyImage(ctx context.Context, c copyOf) error {
	if err := d.flush(ctx, c.from); err != nil {
		return err
	}
	return d.fillPart(c, func(source, target *os.File) error {
		if ok, err := reflink(source, target); ok || err != nil {
			return err
		}
		resume, err := d.holdStill(ctx, c.from)
		if err != nil {
			return fmt.Errorf("the file system below %s cannot reflink: %w", d.dir, err)
		}
		return errors.Join(copySparse(ctx, source, target), resume())
	})
}

// copyStill copies a volume that is held still.
func (d *Driver) copyStill(ctx context.Context, c copyOf) error {
	if c.from.Type != typeImage {
		return d.copyDirectory(ctx, c)
	}
	return d.fillPart(c, func(source, target *os.File) error {
		if ok, err := reflink(source, target); ok || err != nil {
			return err
		}
		return copySparse(ctx, source, target)
	})
}

// fillPart makes the new file that is to become a copy, and has fill copy the image to it.
func (d *Driver) fillPart(c copyOf, fill func(source, target *os.File) error) error {
	source, err := os.Open(d.store.dataPath(c.from.ID, c.from.Type))
	if err != nil {
		return noData(c.from.ID, err)
	}
	defer source.Close()
	path := d.store.dataPath(c.id, c.from.Type) + partSuffix
	target, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		err = errors.Join(fill(source, target), target.Close())
	}
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", c.from.ID, c.id, err)
	}
	return nil
}
