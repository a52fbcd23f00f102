package localdriver

import (
	"context"
	"errors"
	"fmt"
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
