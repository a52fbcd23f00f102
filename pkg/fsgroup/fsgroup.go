// Package fsgroup gives the files of a published volume to its pod's fsGroup, for drivers
// that do not.
//
// Owns: when files change their group, in which process the walk runs, and what a file
// system that has no groups means for the pod.
//
// Does not: decide which group or policy holds for a mount; resolve does.
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

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/ownership"
	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Config is what a Driver needs. Root and Logger are required.
type Config struct {
	// Root is the node's root directory, which no path leaves.
	Root *os.File
	// Helpers walk through the volume, which may hang; nil means in this process.
	Helpers *isolate.Pool
	// Groups: the driver gives volumes to a group itself (VOLUME_MOUNT_GROUP).
	Groups bool
	// Progress receives how far the walk through a volume is; it may be nil.
	Progress func(id state.VolumeID, text string)
	Logger   *slog.Logger
}

// Driver gives a volume to the pod's fsGroup once the driver below has published it,
// where the pod's mount says so and that driver does not do it.
type Driver struct {
	manager.Driver
	Config
}

// Publish implements manager.Driver.
func (d Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	_, err := d.PublishUntil(ctx, v, pod)
	return err
}

// PublishUntil implements manager.Renewer.
func (d Driver) PublishUntil(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	var ends time.Time
	var err error
	if r, ok := d.Driver.(manager.Renewer); ok {
		ends, err = r.PublishUntil(ctx, v, pod)
	} else {
		err = d.Driver.Publish(ctx, v, pod)
	}
	if err == nil {
		err = d.own(ctx, v, pod)
	}
	if err != nil {
		return time.Time{}, err
	}
	return ends, nil
}

// own gives what was published to its group.
func (d Driver) own(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m := v.Mounts[pod]
	if m.Phase == state.Present {
		return nil // what is renewed has its group, and is in use
	}
	if d.Groups || m.Ownership == "" || m.FSGroup == nil {
		return nil
	}
	err := d.walk(ctx, v, m)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EOPNOTSUPP)):
		// A file system that has no such groups, or squashes root: the pod may
		// do well without, and no repetition would help it.
		d.Logger.Warn("files cannot be given to the pod's fsGroup", "volume", string(v.ID), "pod", string(pod), "err", err)
		return nil
	}
	// The volume is mounted, so this is not the end of it.
	return &state.CallError{Outcome: state.Uncertain, Call: "fsGroup", Err: err}
}

// When a walk that takes long is in the log: after 30 seconds and then every
// minute, as the kubelet's events of it are.
const (
	longWalk      = 30 * time.Second
	longWalkAgain = time.Minute
)

func (d Driver) walk(ctx context.Context, v state.Volume, m state.Mount) error {
	next := time.Now().Add(longWalk)
	ctx = isolate.WithProgress(ctx, func(files int64) {
		text := fmt.Sprintf("%d files and directories are looked at for the pod's fsGroup %d so far", files, *m.FSGroup)
		if d.Progress != nil {
			d.Progress(v.ID, text)
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(longWalkAgain)
			d.Logger.Info("files are still being given to the pod's fsGroup", "volume", string(v.ID), "pod", string(m.Pod.UID),
				"files", files)
		}
	})
	if d.Helpers == nil {
		return own(ctx, d.Root, m)
	}
	_, err := isolate.Ask[any](ctx, d.Helpers, string(v.ID), callOwn, ownRequest{d.Root.Name(), v.ID, m})
	return err
}

// own gives what is mounted at m's target to its group. What is not a mount
// is left alone: the manager finds that out by itself.
func own(ctx context.Context, root *os.File, m state.Mount) error {
	dir, err := openBelow(root, m.Target)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return fmt.Errorf("look at %s: %w", m.Target, err)
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

// progressPause is how often a walk reports its progress.
const progressPause = time.Second

// reportEvery reports the progress of a walk every progressPause and at its end, which
// is the call of end.
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
