package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var (
	// errMoving means that a device is appearing, disappearing, or joining a multipath
	// map; the caller looks again.
	errMoving = errors.New("its devices are appearing or disappearing")
	// errOffline means that the kernel has given up a path; the path may come back.
	errOffline = errors.New("the path is offline")
	errTime    = errors.New("time is up")
)

// Search tells how a kind finds the devices that lead to a volume's disk.
type Search struct {
	// Find returns the names of the devices that exist now. all is true if no further
	// ones are expected.
	Find func() (names []string, all bool, err error)
	// Scan asks for the devices again after those that were there have disappeared; nil
	// if that is not necessary.
	Scan func() error
	// Time is how long the devices may take to appear.
	Time time.Duration
	// None is the end of the error text if no device appears: what that means.
	None string
}

// Stage waits for the volume's disk and mounts it. It ignores an offline path if there
// is another path.
func (s Stager) Stage(ctx context.Context, v state.Volume, search Search, w Want) error {
	return retryMoving(ctx, search, func(short context.Context) error {
		names, err := s.Host.await(short, search)
		if err != nil {
			return err
		}
		d, err := s.Host.Found(names)
		if err != nil {
			return err
		}
		seen, err := s.Kernel.Look(ctx, v.Spec.StagePath)
		if err == nil && !seen.Mounted { // else the paths are combined already, or cannot be
			d, err = s.Host.CombinePaths(short, d)
		}
		if err != nil {
			return err
		}
		err = s.Mount(ctx, v, d, w)
		if err == nil {
			return nil
		}
		// multipathd may take the disk at any time; then no other program can use the
		// path directly.
		if now, lookErr := s.Host.Found(d.Paths); lookErr == nil && now.Name != d.Name {
			return fmt.Errorf("%w (%w: %s is now part of %s)", err, errMoving, d.Name, now.Name)
		}
		return err
	})
}

// Release removes the devices that Find returns if they lead to the disk with the WWID.
// An empty wwid matches every disk.
func (s Stager) Release(ctx context.Context, search Search, wwid string) error {
	return retryMoving(ctx, search, func(context.Context) error {
		names, _, err := search.Find()
		if err != nil || len(names) == 0 {
			return err
		}
		found, err := s.Host.Found(names)
		if err != nil || wwid != "" && found.WWID != wwid {
			return err
		}
		return s.Host.Free(ctx, found)
	})
}

// retryMoving calls f again while it fails with errMoving, for at most search.Time;
// short ends then.
func retryMoving(ctx context.Context, search Search, f func(short context.Context) error) error {
	short, cancel := context.WithTimeoutCause(ctx, search.Time, errTime)
	defer cancel()
	var failed error
	ended := poll(short, func() (bool, error) {
		if failed = f(short); errors.Is(failed, errMoving) {
			return false, nil
		}
		return true, nil
	})
	if failed != nil {
		return failed
	}
	return ended
}

// await returns the names of the usable devices once all expected ones have appeared,
// or when the time is up and at least one has.
func (h Host) await(short context.Context, search Search) (names []string, err error) {
	var why error
	seen := false
	err = poll(short, func() (bool, error) {
		found, all, err := search.Find()
		if err == nil && seen && len(found) == 0 && search.Scan != nil {
			err = search.Scan()
		}
		if err != nil {
			return false, err
		}
		seen = len(found) > 0
		var settled bool
		names, settled, why = h.ready(found)
		return all && settled && len(names) > 0, nil
	})
	switch {
	case !errors.Is(err, errTime):
		return names, err
	case len(names) > 0:
		return names, nil
	case why != nil:
		return nil, fmt.Errorf("no device within %v is usable: %w", search.Time, why)
	}
	return nil, fmt.Errorf("no device within %v: %s", search.Time, search.None)
}

// ready returns which of the devices are usable, and why the others are not. settled is
// true if none of the others may still become usable soon.
func (h Host) ready(names []string) (usable []string, settled bool, why error) {
	settled = true
	for _, name := range names {
		err := h.usable(name)
		if err == nil {
			usable = append(usable, name)
			continue
		}
		if !errors.Is(err, errOffline) {
			settled = false
		}
		why = errors.Join(why, fmt.Errorf("%s: %w", name, err))
	}
	return usable, settled, why
}

// usable returns nil if a SCSI device can be used, otherwise why not. A device appears
// in this order: its directory below that of its SCSI device, its entry in /sys/block,
// its node; only then can the node be opened. It disappears in the reverse order.
func (h Host) usable(name string) error {
	switch state, err := h.read("block", name, "device", "state"); {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case state == "offline", state == "transport-offline":
		return errOffline
	case err == nil && state != "running":
		return fmt.Errorf("state %q: %w", state, errMoving)
	}
	for _, path := range []string{
		h.sys("block", name, "dev"), h.sys("block", name, "device", "wwid"),
		filepath.Join(h.Dev, name),
	} {
		if _, err := os.Lstat(path); err != nil {
			return fmt.Errorf("%w (%w)", err, errMoving)
		}
	}
	f, err := h.openNode(name, os.O_RDONLY)
	if errors.Is(err, errMoving) {
		return err
	}
	if err != nil {
		return nil // opening it later reports what is wrong with it
	}
	return f.Close()
}

// openNode opens a device node. The kernel returns ENXIO or ENODEV for a node whose
// device is not there yet, or no longer.
func (h Host) openNode(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(h.Dev, name), flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w (%w)", err, errMoving)
	}
	return f, err
}
