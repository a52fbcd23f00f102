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
	// errMoving means that a device is just coming, going, or becoming part of a
	// multipath map: to be looked at again.
	errMoving = errors.New("its devices are just coming or going")
	// errOffline means that the kernel has given up a path; it may come back.
	errOffline = errors.New("the path is offline")
	errTime    = errors.New("time is up")
)

// Search is how a kind finds the devices that lead to a volume's disk.
type Search struct {
	// Find returns the names of those that are there, and whether none is still
	// to come.
	Find func() (names []string, all bool, err error)
	// Scan asks for them once more, where those that were there are gone; nil
	// where nothing needs that.
	Scan func() error
	// Time is how long they may take to come.
	Time time.Duration
	// None says what it means where none comes.
	None string
}

// Stage waits for the volume's disk and mounts it. A path that is offline is
// done without where there is another one.
func (s Stager) Stage(ctx context.Context, v state.Volume, search Search, w Want) error {
	return while(ctx, search, func(short context.Context) error {
		names, err := s.Host.await(short, search)
		if err != nil {
			return err
		}
		d, err := s.Host.Found(names)
		if err == nil {
			d, err = s.Host.Gather(ctx, d)
		}
		if err != nil {
			return err
		}
		err = s.Mount(ctx, v, d, w)
		if err == nil {
			return nil
		}
		// multipathd takes a disk when it likes, and then no other process has it.
		if now, lookErr := s.Host.Found(d.Paths); lookErr == nil && now.Name != d.Name {
			return fmt.Errorf("%w (%w: %s is part of %s by now)", err, errMoving, d.Name, now.Name)
		}
		return err
	})
}

// Release lets the devices go that Find returns, if they are the disk with the
// WWID; "" is any.
func (s Stager) Release(ctx context.Context, search Search, wwid string) error {
	return while(ctx, search, func(context.Context) error {
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

// while repeats f while what it works on is just coming or going, for as long as
// the search may take; short ends then.
func while(ctx context.Context, search Search, f func(short context.Context) error) error {
	short, cancel := context.WithTimeoutCause(ctx, search.Time, errTime)
	defer cancel()
	var failed error
	ended := Await(short, func() (bool, error) {
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

// await returns the names of the devices that can be used, once all that are to
// come have come, or when time is up and at least one has.
func (h Host) await(short context.Context, search Search) (names []string, err error) {
	var why error
	seen := false
	err = Await(short, func() (bool, error) {
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
		return nil, fmt.Errorf("no device within %v that can be used: %w", search.Time, why)
	}
	return nil, fmt.Errorf("no device within %v: %s", search.Time, search.None)
}

// ready returns those of the devices that can be used, and why others cannot.
// settled is whether none of those may be only on its way.
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

// usable returns why a SCSI device cannot be used yet, or not any more; nil
// where it can. While a device comes, its directory below that of its SCSI
// device is there before its entry in /sys/block, that before its node, and the
// node before it can be opened; while it goes, the other way round.
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
		return nil // its user says what is wrong with it
	}
	return f.Close()
}

// openNode opens a device's node. The kernel answers ENXIO or ENODEV where a
// device has a node and is not there yet, or no more.
func (h Host) openNode(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(h.Dev, name), flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w (%w)", err, errMoving)
	}
	return f, err
}
