package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// partSuffix marks an unfinished copy.
const partSuffix = ".part"

// copyOf is a copy to make: the data of volume or snapshot id is copied from the volume from.
type copyOf struct {
	from volume
	id   string
}

// copyData copies the data of from, which the caller has locked, to the volume or snapshot id. The
// copy is durable.
func (d *Driver) copyData(ctx context.Context, from volume, id string) error {
	return d.makeCopies(ctx, []copyOf{{from: from, id: id}})
}

// makeCopies copies volumes that the caller has locked. The copies are durable and show all volumes
// at one moment; after an error none is left. A directory in use is copied while it changes.
// makeCopies replaces what an interrupted attempt left, finished or not: no volume uses it yet, and
// it shows another moment.
func (d *Driver) makeCopies(ctx context.Context, copies []copyOf) error {
	for _, c := range copies {
		if err := d.removeData(ctx, c.id, c.from.Type); err != nil {
			return err
		}
	}
	dir := filepath.Join(d.dir, dataDir)
	err := d.fillCopies(ctx, copies)
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

// removeData removes the data of a volume or snapshot, and an unfinished copy for it.
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
	if err := d.tryCopyDirectory(ctx, c); err != nil {
		return fmt.Errorf("copy %s to %s: %w", c.from.ID, c.id, err)
	}
	return nil
}

// tryCopyDirectory copies from a mount on which the kernel follows no link. Otherwise a pod that has
// the volume mounted could replace a directory by a link while cp walks, and cp would copy files of
// the node.
func (d *Driver) tryCopyDirectory(ctx context.Context, c copyOf) error {
	source, target := d.store.dataPath(c.from.ID, c.from.Type), d.store.dataPath(c.id, c.from.Type)+partSuffix
	tree, err := cloneWithoutLinks(source)
	if errors.Is(err, errFollowsLinks) {
		if busy := d.mustBeIdle(ctx, c.from); busy != nil {
			return fmt.Errorf("%w, so only a volume that no pod has mounted can be copied: %w", err, busy)
		}
		return copyTree(ctx, source, target)
	}
	if err != nil {
		return err
	}
	defer tree.Close()
	return copyTree(ctx, procPath(tree), target)
}

// fillCopies makes the unfinished files and directories of copies. It starts with the images in
// use, which may be written meanwhile; the others do not change.
func (d *Driver) fillCopies(ctx context.Context, copies []copyOf) (err error) {
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
	if err := d.copyInUse(ctx, moving); err != nil {
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

// part is an unfinished copy of an image.
type part struct {
	copyOf
	source, target *os.File
	// cloned means that target is an atomic clone of source, so the file system supports reflink.
	cloned bool
}

// openPart makes the file for the copy of an image and clones the image to it if the file system
// supports that. It reports whether the image is in use.
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

// copyInUse copies images that are in use, all at one moment. A single clone is atomic; several
// clones, and copies that take time, need frozen file systems.
func (d *Driver) copyInUse(ctx context.Context, parts []part) error {
	if len(parts) == 0 || len(parts) == 1 && parts[0].cloned {
		return nil
	}
	volumes := make([]volume, 0, len(parts))
	for _, p := range parts {
		volumes = append(volumes, p.from)
		if err := p.target.Truncate(0); err != nil { // before the freeze, because it takes time
			return p.failed(err)
		}
	}
	err := d.whileFrozen(ctx, volumes, func(ctx context.Context) error {
		for _, p := range parts {
			if err := p.fill(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !parts[0].cloned {
		return fmt.Errorf("%s is on a file system without reflink, so the volume stays frozen while it is copied; "+
			"the driver's state directory belongs on xfs or btrfs: %w", d.dir, err)
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
		err = errors.New("the file system cloned it once, but not again")
	}
	if err != nil {
		return p.failed(err)
	}
	return nil
}

// procPath returns a path to a directory that this process has open.
func procPath(dir *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d/.", os.Getpid(), dir.Fd()) }
