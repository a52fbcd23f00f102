package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// stagedFS reports whether a shows a file system of an image mounted where we can reach it.
func (d *Driver) stagedFS(ctx context.Context, a attachment) (bool, error) {
	if a.Stage == nil || a.Stage.Block {
		return false, nil
	}
	info, err := d.mounts.Look(ctx, a.Stage.Path)
	return info.Mounted, err
}

// flush writes what programs have written, and the file system of v has in memory, to its image: it belongs
// to a copy, and a freeze that comes next is short.
func (d *Driver) flush(ctx context.Context, v volume) error {
	a := d.store.attachment(v.ID)
	mounted, err := d.stagedFS(ctx, a)
	if err != nil || !mounted {
		return err
	}
	return syncFS(a.Stage.Path)
}

// holdStill stops the writes to the image of v for a copy that takes time, and
// returns what resumes them. An image that is not attached is still anyway.
func (d *Driver) holdStill(ctx context.Context, v volume) (resume func() error, err error) {
	a := d.store.attachment(v.ID)
	mounted, err := d.stagedFS(ctx, a)
	if err != nil {
		return nil, err
	}
	devs, err := findLoops(d.store.dataPath(v.ID, v.Type))
	closeLoops(devs)
	switch {
	case err != nil:
		return nil, err
	case len(devs) == 0:
		return func() error { return nil }, nil
	case !mounted:
		return nil, precondition("volume %s is in use as a raw block device, or its file system is not mounted where it was "+
			"staged: it cannot be held still, and no copy of one moment is possible", a.ID)
	}
	// The file system is thawed through this, whatever becomes of the mount at its path meanwhile: a
	// freeze outlives an unmount.
	dir, err := os.Open(a.Stage.Path)
	if err != nil {
		return nil, err
	}
	end, err := d.freezeStage(a, dir)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() error { return errors.Join(end(), dir.Close()) }, nil
}

// freezeStage freezes the file system of a, which is open as dir, and returns what ends that.
func (d *Driver) freezeStage(a attachment, dir *os.File) (end func() error, err error) {
	if a.Frozen { // a thaw of before has failed: that freeze is this driver's
		if err := d.thawStage(a, dir); err != nil {
			return nil, err
		}
	}
	if err := d.announce(a, true); err != nil {
		return nil, err
	}
	err = ioctl(dir, iocFreeze, nil)
	if errors.Is(err, unix.EBUSY) { // the orchestrator has frozen it, and thaws it
		return func() error { return d.stillFrozen(a, dir) }, d.announce(a, false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("freeze %s: %w", a.Stage.Path, err), d.thawStage(a, dir))
	}
	return func() error { return d.thawStage(a, dir) }, nil
}

// announce writes whether the driver is about to freeze the file system of a: a start ends what it
// has announced.
func (d *Driver) announce(a attachment, frozen bool) error {
	a.Frozen = frozen
	return d.store.putAttachment(a)
}

// holdAll stops the writes to all the volumes that are to be copied, and returns what resumes them: from the
// last freeze to the first thaw none of them changes. An error leaves none of them held.
func (d *Driver) holdAll(ctx context.Context, copies []copyOf) (resume func() error, err error) {
	for _, c := range copies {
		if c.from.Type == typeImage {
			err = d.flush(ctx, c.from)
		} else if err = d.mustBeIdle(ctx, c.from); err != nil {
			err = fmt.Errorf("a volume of type directory cannot be held still, so a group takes it only while it is not "+
				"mounted: %w", err)
		}
		if err != nil {
			return nil, err
		}
	}
	var held []func() error
	resume = func() error {
		var all []error
		for _, one := range slices.Backward(held) {
			all = append(all, one())
		}
		return errors.Join(all...)
	}
	for _, c := range copies {
		if c.from.Type != typeImage {
			continue
		}
		one, err := d.holdStill(ctx, c.from)
		if err != nil {
			return nil, errors.Join(err, resume())
		}
		held = append(held, one)
	}
	return resume, nil
}

// stillFrozen fails where another program's freeze has ended: a copy that was made meanwhile is of
// no one moment. It finds that out by a freeze, which it announces as any other.
func (d *Driver) stillFrozen(a attachment, dir *os.File) error {
	if err := d.announce(a, true); err != nil {
		return err
	}
	err := ioctl(dir, iocFreeze, nil)
	if errors.Is(err, unix.EBUSY) {
		return d.announce(a, false)
	}
	if err = errors.Join(err, d.thawStage(a, dir)); err != nil {
		return fmt.Errorf("see whether %s is frozen yet: %w", a.Stage.Path, err)
	}
	return precondition("volume %s was thawed while it was copied: no copy of one moment was made", a.ID)
}

// thawStage ends the freeze that a announces, of the file system that is open as dir. One that is not
// frozen is left as it is.
func (d *Driver) thawStage(a attachment, dir *os.File) error {
	if err := ioctl(dir, iocThaw, nil); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("thaw %s: %w", a.Stage.Path, err)
	}
	return d.announce(a, false)
}

// thawLeft ends the freeze that a announces and that a driver before this one has left.
func (d *Driver) thawLeft(a attachment) error {
	if a.Stage == nil {
		return d.announce(a, false)
	}
	dir, err := os.Open(a.Stage.Path)
	if errors.Is(err, errNotExist) {
		return d.announce(a, false)
	}
	if err != nil {
		return fmt.Errorf("thaw %s: %w", a.Stage.Path, err)
	}
	defer dir.Close()
	return d.thawStage(a, dir)
}
