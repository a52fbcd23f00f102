package freeze

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// A thaw that failed is retried after thawEvery, then after twice that, up to thawMost. When
// the daemon ends, a last try has lastTry.
const (
	thawEvery = time.Second
	thawMost  = 30 * time.Second
	lastTry   = 5 * time.Second
)

// thawShare is the share of the pool of helpers (percent) that thaws may use.
const thawShare = 20

// freezing is one freeze of a file system. The goroutine of hold or thawUntilDone owns it; the
// channels report its progress.
type freezing struct {
	f   *Freezer
	rec record   // its Dev is "" for a volume that is not mounted
	pin *os.File // keeps the file system mounted; nil if an earlier daemon froze it

	stop       func()        // closes callerDone, once
	callerDone chan struct{} // closed when its caller no longer needs it
	frozen     chan struct{} // closed when the kernel has frozen it
	done       chan struct{} // closed at the end; the fields below no longer change
	expired    bool          // it ended before its caller asked
	err        error         // why it was not frozen
}

func newFreezing(f *Freezer, rec record) *freezing {
	z := &freezing{f: f, rec: rec, callerDone: make(chan struct{}), frozen: make(chan struct{}), done: make(chan struct{})}
	z.stop = sync.OnceFunc(func() { close(z.callerDone) })
	return z
}

// awaitFrozen waits until the kernel has frozen the file system; the limit may have thawed it
// already.
func (z *freezing) awaitFrozen(ctx context.Context) error {
	select {
	case <-z.frozen:
		return nil
	case <-z.done:
		return z.err // nil if the limit ended it before this goroutine ran
	case <-ctx.Done():
		z.stop()
		return context.Cause(ctx)
	}
}

// thawAndWait is the thaw function that [Freezer.Freeze] returns.
func (z *freezing) thawAndWait(ctx context.Context) (expired bool) {
	if z.rec.Dev == "" {
		place, err := z.f.place(z.rec.Volume)
		return err != nil || place.Path != ""
	}
	z.stop()
	select {
	case <-z.done:
		return z.expired
	case <-ctx.Done():
		return true
	}
}

// hold freezes, waits until the caller, the limit or the daemon ends the freeze, and
// thaws. A FIFREEZE under way cannot be cancelled: the thaw waits for its result.
func (z *freezing) hold(runCtx context.Context, limit <-chan time.Time) {
	err := z.freeze(runCtx)
	switch {
	case err == nil:
		close(z.frozen)
		select {
		case <-z.callerDone:
		default:
			select {
			case <-z.callerDone:
			case <-limit:
				z.expired = true
			case <-runCtx.Done():
				z.expired = true
			}
		}
		z.thawUntilDone(runCtx, true)
	case errors.Is(err, isolate.ErrLost) || runCtx.Err() != nil: // it may be frozen nevertheless
		z.err = err
		z.thawUntilDone(runCtx, errors.Is(err, isolate.ErrLost))
	default: // it is not; if it is frozen, another program did that
		z.err = err
		z.finish(runCtx)
	}
}

// thawUntilDone thaws until that succeeds or the daemon ends. answered means that FIFREEZE has
// returned, so that no freeze can follow the first successful thaw.
func (z *freezing) thawUntilDone(runCtx context.Context, answered bool) {
	thawed := false
	for wait := thawEvery; runCtx.Err() == nil && !thawed; wait = min(2*wait, thawMost) {
		if thawed = z.thaw(runCtx); !thawed {
			select {
			case <-time.After(wait):
			case <-runCtx.Done():
			}
		}
	}
	if !thawed {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(runCtx), lastTry)
		defer cancel()
		thawed = z.thaw(ctx)
	}
	if !thawed || !answered {
		z.close()
		return
	}
	z.f.c.Logger.Info("file system is thawed", "volume", string(z.rec.Volume), "path", z.rec.Path, "early", z.expired)
	z.finish(runCtx)
}

// finish removes the record of a freeze that is over.
func (z *freezing) finish(runCtx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(runCtx), lastTry)
	defer cancel()
	if err := z.f.drop(ctx, z.rec); err != nil {
		z.f.c.Logger.Error("cannot remove the record of a freeze that is over", "volume", string(z.rec.Volume), "err", err)
	}
	z.close()
}

// close ends z. If its record remains, the next daemon thaws the file system.
func (z *freezing) close() {
	if z.pin != nil {
		z.pin.Close()
	}
	z.f.unclaim(z)
	close(z.done)
}

func (z *freezing) freeze(ctx context.Context) error {
	text, err := json.Marshal(request{Path: z.pinnedPath()})
	if err != nil {
		return err
	}
	_, err = z.f.c.Helpers.Do(ctx, "freeze "+z.rec.Path, callFreeze, text)
	return err
}

// pinnedPath returns a path to the file system that does not depend on mounts at its mount
// point.
func (z *freezing) pinnedPath() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), z.pin.Fd()) }

// thaw tries to thaw the file system once. If that fails, it logs the error and returns
// false.
func (z *freezing) thaw(ctx context.Context) bool {
	err := z.tryThaw(ctx)
	if err != nil {
		z.f.c.Logger.Error("frozen file system is not thawed yet", "volume", string(z.rec.Volume), "path", z.rec.Path,
			"err", err)
	}
	return err == nil
}

func (z *freezing) tryThaw(ctx context.Context) error {
	if z.rec.Boot != z.f.c.Boot {
		return nil
	}
	r := request{Device: z.rec.Dev}
	if z.pin != nil {
		r = request{Path: z.pinnedPath()}
	} else {
		var err error
		if r.Path, err = z.mountPoint(ctx); err != nil {
			return err
		}
		if r.Path == "" {
			return nil
		}
		if z.rec.FSType == "btrfs" { // each subvolume has its own device number
			r.Device = ""
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Of their own, because other calls may wait for the thaw and have all helpers of a share.
	ctx = isolate.WithShares(ctx, isolate.Share{Name: "thaws", Percent: thawShare})
	// Not the key of the freeze, which may be blocked if its helper was lost.
	_, err = z.f.c.Helpers.Do(ctx, "thaw "+z.rec.Path, callThaw, text)
	return err
}

// mountPoint returns where the file system of a record is mounted now, which may be
// elsewhere than before. "" means that its device is gone, and the freeze with it.
func (z *freezing) mountPoint(ctx context.Context) (string, error) {
	table, err := z.f.c.Mounts(ctx)
	if err != nil {
		return "", err
	}
	found := ""
	for _, e := range table {
		if shown, _ := mount.MountOf(table, e.Path); mount.DeviceText(e.Dev) == z.rec.Dev && shown.Dev == e.Dev &&
			(found == "" || e.Path == z.rec.Path) {
			found = e.Path
		}
	}
	if found != "" {
		return found, nil
	}
	if !strings.HasPrefix(z.rec.Dev, "0:") {
		if _, err := os.Lstat("/sys/dev/block/" + z.rec.Dev); errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
	}
	return "", fmt.Errorf("device %s is not mounted: its next mount would be frozen", z.rec.Dev)
}
