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

// stagedFS reports whether a says that an image's file system is staged, and it is mounted there.
func (d *Driver) stagedFS(ctx context.Context, a attachment) (bool, error) {
	if a.Stage == nil || a.Stage.Block {
		return false, nil
	}
	info, err := d.mounts.Look(ctx, a.Stage.Path)
	return info.Mounted, err
}

// flush writes the dirty data of v's file system to its image: the data belongs in the copy, and a
// freeze that follows is shorter.
func (d *Driver) flush(ctx context.Context, v volume) error {
	a := d.store.attachment(v.ID)
	mounted, err := d.stagedFS(ctx, a)
	if err != nil || !mounted {
		return err
	}
	return syncFS(a.Stage.Path)
}

// freezeVolume stops writes to the image of v for a copy that takes time, and returns the function
// that resumes them. For an image that is not attached there is nothing to do.
func (d *Driver) freezeVolume(ctx context.Context, v volume) (resume func() error, err error) {
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
			"staged: it cannot be frozen, so a consistent copy is not possible", a.ID)
	}
	// Thaw through this descriptor, because a freeze outlives an unmount of the path.
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

// freezeStage freezes the file system of a, open as dir, and returns the function that thaws it.
func (d *Driver) freezeStage(a attachment, dir *os.File) (end func() error, err error) {
	if a.Frozen { // an earlier thaw failed: the freeze is this driver's
		if err := d.thawStage(a, dir); err != nil {
			return nil, err
		}
	}
	if err := d.recordFrozen(a, true); err != nil {
		return nil, err
	}
	err = ioctl(dir, iocFreeze, nil)
	if errors.Is(err, unix.EBUSY) { // the orchestrator has frozen it, and will thaw it
		return func() error { return d.checkStillFrozen(a, dir) }, d.recordFrozen(a, false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("freeze %s: %w", a.Stage.Path, err), d.thawStage(a, dir))
	}
	return func() error { return d.thawStage(a, dir) }, nil
}

// recordFrozen records whether the driver may have frozen the file system of a. The next driver to
// start thaws it.
func (d *Driver) recordFrozen(a attachment, frozen bool) error {
	a.Frozen = frozen
	return d.store.putAttachment(a)
}

// maxFreeze limits how long file systems are frozen for a copy, because programs that write wait
// meanwhile. It is csi-volmgr's maximum for --freeze.
const maxFreeze = time.Minute

// whileFrozen calls write while volumes are frozen. After d.maxFreeze, or when ctx ends, the
// volumes are thawed even if a freeze or write hangs. Then whileFrozen returns an error, because
// the copies do not show one moment.
func (d *Driver) whileFrozen(ctx context.Context, volumes []volume, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.maxFreeze, precondition("the copy took longer than %s, the "+
		"maximum for which file systems are frozen; while no pod has the volume mounted, it may take longer", d.maxFreeze))
	defer cancel()
	h := &freezes{}
	stop := context.AfterFunc(ctx, func() { h.end() }) // the next call of end returns the error
	err := d.freezeAll(ctx, volumes, h)
	if err == nil {
		err = write(ctx)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, h.end())
}

// freezes are the volumes that are frozen for one copy.
type freezes struct {
	mu    sync.Mutex // guards the fields below
	thaws []func() error
	ended bool
	err   error // from the thaws
}

// add registers the function that resumes a volume. If end was called before, add calls resume at
// once.
func (h *freezes) add(resume func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.thaws = append(h.thaws, resume)
	if h.ended {
		h.resume()
	}
}

// end resumes all volumes and returns the errors of this call and of those before.
func (h *freezes) end() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.resume()
	return h.err
}

// resume calls the registered functions. The caller holds h.mu.
func (h *freezes) resume() {
	for _, one := range slices.Backward(h.thaws) {
		h.err = errors.Join(h.err, one())
	}
	h.thaws = nil
}

// freezeAll freezes all volumes and adds them to h, even if it returns an error.
func (d *Driver) freezeAll(ctx context.Context, volumes []volume, h *freezes) error {
	for _, v := range volumes {
		one, err := d.freezeVolume(ctx, v)
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

// checkStillFrozen returns an error if another program's freeze has ended, because a copy made
// since does not show one moment. It checks by freezing, which it records like any other freeze.
func (d *Driver) checkStillFrozen(a attachment, dir *os.File) error {
	if err := d.recordFrozen(a, true); err != nil {
		return err
	}
	err := ioctl(dir, iocFreeze, nil)
	if errors.Is(err, unix.EBUSY) {
		return d.recordFrozen(a, false)
	}
	if err = errors.Join(err, d.thawStage(a, dir)); err != nil {
		return fmt.Errorf("check whether %s is still frozen: %w", a.Stage.Path, err)
	}
	return precondition("volume %s was thawed while it was copied, so the copy is not consistent", a.ID)
}

// thawStage ends the recorded freeze of a, whose file system is open as dir. It does nothing if the
// file system is not frozen.
func (d *Driver) thawStage(a attachment, dir *os.File) error {
	if err := ioctl(dir, iocThaw, nil); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("thaw %s: %w", dir.Name(), err)
	}
	return d.recordFrozen(a, false)
}

// errNowhere means that a frozen file system is not mounted, so that no path leads to it.
var errNowhere = errors.New("it is frozen, and mounted nowhere")

// thawStaged is thawLeftover for a staged volume. If it is mounted nowhere, it is mounted again where it is
// staged.
func (d *Driver) thawStaged(ctx context.Context, v volume, a attachment) error {
	err := d.thawLeftover(ctx, a)
	if !errors.Is(err, errNowhere) {
		return err
	}
	if err := d.mountImage(ctx, v, a.Stage.Path, a.Stage.use); err != nil {
		return err
	}
	return d.thawLeftover(ctx, a)
}

// thawLeftover ends the recorded freeze of a, which an earlier call or driver left behind. A freeze
// outlives an unmount of the stage, so the pods' mounts serve as well.
func (d *Driver) thawLeftover(ctx context.Context, a attachment) error {
	devs, err := findLoops(d.store.dataPath(a.ID, typeImage))
	if err != nil {
		return err
	}
	defer closeLoops(devs)
	if len(devs) == 0 {
		return d.recordFrozen(a, false)
	}
	v, _, err := d.store.volume(a.ID)
	if err != nil {
		d.log.Error("file system may be frozen", "volume", a.ID, "err", err) // thaw it nevertheless
	}
	paths := a.fsTargets()
	if a.Stage != nil {
		paths = append(paths, a.Stage.Path)
	}
	path, err := d.mountPoint(ctx, v, devs[0], paths)
	if err != nil {
		return err
	}
	if path == "" {
		return fmt.Errorf("thaw volume %s: %w: the driver thaws it when it is staged or unstaged next", a.ID, errNowhere)
	}
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("thaw %s: %w", path, err)
	}
	defer dir.Close()
	return d.thawStage(a, dir)
}
