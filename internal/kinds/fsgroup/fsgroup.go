// Package fsgroup gives the files of a published volume to its pod's fsGroup, for
// drivers that do not do so themselves.
//
// Owns: when files change their group, which process walks through them, and what
// happens on a file system without groups.
//
// Does not: decide which group or policy applies to a mount; resolve does.
package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/ownership"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Config configures a Driver. Root and Logger are required.
type Config struct {
	// Root is the node's root directory; no path leads out of it.
	Root *os.File
	// Helpers run the walk through the volume, which may hang. If nil, it runs in this
	// process.
	Helpers *isolate.Pool
	// Groups is true if the driver sets a volume's group itself (VOLUME_MOUNT_GROUP).
	Groups bool
	// Progress receives the progress of the walk through a volume; it may be nil.
	Progress func(id state.VolumeID, text string)
	Logger   *slog.Logger
}

// Driver gives a volume to the pod's fsGroup after the embedded driver has published
// it, if the pod's mount asks for it and that driver does not do it.
type Driver struct {
	manager.Driver
	Config
}

// Publish implements manager.Driver.
func (d Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	renewAt, err := d.Driver.Publish(ctx, v, pod)
	if err != nil {
		return time.Time{}, err
	}
	err = d.giveToGroup(ctx, v, pod)
	if e, ok := errors.AsType[*state.CallError](err); ok && e.Outcome != state.Partly {
		return time.Time{}, err
	}
	return renewAt, err
}

// giveToGroup gives a published volume to its group.
func (d Driver) giveToGroup(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m := v.Mounts[pod]
	if m.Phase == state.Present {
		return nil // a renewed mount is in use and has its group already
	}
	if d.Groups || m.Ownership == "" || m.FSGroup == nil {
		return nil
	}
	err := d.walk(ctx, v, m)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && lasts(err):
		// Retrying would not help, and the pod may work without.
		d.Logger.Warn("cannot give the files to the pod's fsGroup", "volume", string(v.ID), "pod", string(pod), "err", err)
		return &state.CallError{Outcome: state.Partly, Call: "fsGroup", Err: err}
	}
	// The volume stays mounted, so the outcome is not definite.
	return &state.CallError{Outcome: state.Uncertain, Call: "fsGroup", Err: err}
}

// lasts reports whether another walk would fail as this one did: the file system has no such groups or is read-only, a
// file is immutable, or a server squashes root, which then may neither change a file nor enter a directory of others.
func lasts(err error) bool {
	for _, lasting := range []error{unix.EPERM, unix.EACCES, unix.EROFS, unix.EOPNOTSUPP} {
		if errors.Is(err, lasting) {
			return true
		}
	}
	return false
}

// A long walk is logged after 30 seconds and then every minute; the kubelet records its
// events at the same times.
const (
	longWalk      = 30 * time.Second
	longWalkAgain = time.Minute
)

func (d Driver) walk(ctx context.Context, v state.Volume, m state.Mount) error {
	next := time.Now().Add(longWalk)
	ctx = isolate.WithProgress(ctx, func(files int64) {
		text := fmt.Sprintf("%d files and directories checked for the pod's fsGroup %d so far", files, *m.FSGroup)
		if d.Progress != nil {
			d.Progress(v.ID, text)
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(longWalkAgain)
			d.Logger.Info("still giving the files to the pod's fsGroup", "volume", string(v.ID), "pod", string(m.Pod.UID),
				"files", files)
		}
	})
	if d.Helpers == nil {
		return setGroup(ctx, d.Root, m)
	}
	_, err := isolate.Ask[any](ctx, d.Helpers, string(v.ID), callOwn, ownRequest{d.Root.Name(), v.ID, m})
	return err
}

// setGroup gives the mount at m's target to its group. If nothing is mounted there, it does
// nothing: the manager notices that itself.
func setGroup(ctx context.Context, root *os.File, m state.Mount) error {
	dir, err := openBelow(root, m.Target)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return fmt.Errorf("inspect %s: %w", m.Target, err)
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return nil
	}
	var files atomic.Int64
	defer reportEvery(ctx, &files)()
	return ownership.Apply(ctx, dir, ownership.Options{
		GID: *m.FSGroup, OnRootMismatch: m.Ownership == state.OwnOnRootMismatch, Each: func() { files.Add(1) },
	})
}

// progressPause is the time between two progress reports of a walk.
const progressPause = time.Second

// reportEvery reports the progress of a walk every progressPause until end is called,
// and then once more.
func reportEvery(ctx context.Context, files *atomic.Int64) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressPause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				isolate.Report(ctx, files.Load())
			case <-stop:
				isolate.Report(ctx, files.Load())
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
