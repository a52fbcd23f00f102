package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

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
	attached, err := isAttached(d.store.dataPath(v.ID, v.Type))
	switch {
	case err != nil:
		return nil, err
	case !attached:
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

// maxFreeze is how long the driver holds file systems still for a copy: as long as csi-volmgr does
// with --freeze at the most. Programs that write wait meanwhile.
const maxFreeze = time.Minute

// whileStill has write copy volumes that are held still, from the last freeze to the first thaw. After
// d.maxFreeze, and when ctx ends, they go on, even where the freeze of one or write itself hangs: then it
// returns an error, since what write has copied is of no one moment.
func (d *Driver) whileStill(ctx context.Context, volumes []volume, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.maxFreeze, precondition("the copy was not made within %s, the longest "+
		"that file systems are held still for one; while no pod has the volume mounted, it may take longer", d.maxFreeze))
	defer cancel()
	h := &holds{}
	stop := context.AfterFunc(ctx, func() { h.end() }) // the error is returned by the next call
	err := d.holdAll(ctx, volumes, h)
	if err == nil {
		err = write(ctx)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, h.end())
}

// holds are volumes that are held still.
type holds struct {
	mu    sync.Mutex // guards what follows
	held  []func() error
	ended bool
	err   error // of the end
}

// add has end call resume; resume is called at once where the end came before.
func (h *holds) add(resume func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = append(h.held, resume)
	if h.ended {
		h.resume()
	}
}

// end resumes the writes to all volumes, and returns what went wrong with that at this and each call before.
func (h *holds) end() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.resume()
	return h.err
}

// resume resumes those that are held. The caller holds h.mu.
func (h *holds) resume() {
	for _, one := range slices.Backward(h.held) {
		h.err = errors.Join(h.err, one())
	}
	h.held = nil
}

// holdAll stops the writes to all volumes, which h is to resume also where it fails.
func (d *Driver) holdAll(ctx context.Context, volumes []volume, h *holds) error {
	for _, v := range volumes {
		one, err := d.holdStill(ctx, v)
		if err != nil {
			return err
		}
		h.add(one)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
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
