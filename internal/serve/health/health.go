// Package health asks drivers, built-in kinds and the kernel for the usage and the health of volumes.
//
// Owns: what to ask about which volume, whom to ask, and what an answer means.
//
// Does not: decide when to ask, or keep answers; stats does.
package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/emptydir"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volumes is the part of the manager that health reads.
type Volumes interface {
	// EachVolume yields every volume; yield must not call the manager.
	EachVolume(yield func(manager.VolumeStatus) bool)
	Volume(id state.VolumeID) (manager.VolumeStatus, bool)
}

// Controller asks drivers' Controller services (controller.Controller).
type Controller interface {
	// Monitored returns the volumes of claims that Health can be asked about; nil if there are none. The
	// caller may change the map.
	Monitored() map[state.VolumeID]controller.Monitored
	// Health returns the function that asks about a volume; false if it cannot be asked about now.
	Health(claim string, id state.VolumeID) (ask func(context.Context) ([]csiclient.Condition, error), ok bool)
}

// Usage measures a volume of a built-in kind that does not mount.
type Usage func(context.Context, state.Volume, state.PodUID) (emptydir.Usage, error)

// Asker asks for the usage and health of volumes; every field is required. Any goroutine may call its
// methods.
type Asker struct {
	Volumes Volumes
	// Drivers returns the registered drivers. The caller must not change the map.
	Drivers    func() map[state.DriverName]*csiclient.Driver
	Controller Controller
	// Usage has the built-in kinds that measure their volumes themselves.
	Usage map[state.DriverName]Usage
	// Mounts knows which volumes are FUSE file systems, and which of them are dead.
	Mounts *watch.Mounts
}

// Subjects yields what can be asked about: volumes that a pod has, volumes of claims, and drivers'
// storage. It must not allocate for each volume, because the collector calls it for 1,000 volumes every
// 10 seconds while any volume is watched.
func (a *Asker) Subjects(yield func(stats.Subject) bool) {
	drivers, fuse := a.Drivers(), a.Mounts.FUSE()
	judges := make(map[state.DriverName]bool, len(drivers))
	for name, d := range drivers {
		i := d.Info()
		judges[name] = i.VolumeHealth || i.OldCondition
		if i.StorageHealth && !yield(stats.Subject{Key: stats.StorageKey(name), Driver: name, Watched: true}) {
			return
		}
	}
	controlled := a.Controller.Monitored()
	for s := range a.Volumes.EachVolume {
		spec := s.Volume.Spec
		_, judged := controlled[s.Volume.ID]
		delete(controlled, s.Volume.ID)
		pod, has := firstPod(s.Volume.Mounts)
		if !has {
			d := drivers[spec.Driver]
			if (judged || d != nil && d.Info().VolumeHealth && tried(s.Volume)) &&
				!yield(stats.Subject{Key: string(s.Volume.ID), Driver: spec.Driver, Claim: spec.Claim, Watched: true}) {
				return
			}
			continue
		}
		_, mortal := fuse[s.Volume.Mounts[pod].Target]
		b, builtin := kind.Of(spec.Driver)
		usage := a.Usage[spec.Driver]
		if builtin && !mortal && usage == nil && !(b.Mounts && spec.Mode == state.Filesystem) {
			continue // its kind cannot be measured
		}
		limited := usage != nil && emptydir.Limited(*spec)
		if !yield(stats.Subject{
			Key: string(s.Volume.ID), Driver: spec.Driver, Claim: spec.Claim,
			Watched: mortal || limited || judged || judges[spec.Driver], Mortal: mortal,
		}) {
			return
		}
	}
	for id, is := range controlled { // their volumes are not on this node
		if !yield(stats.Subject{Key: string(id), Driver: is.Driver, Claim: is.Claim, Watched: true}) {
			return
		}
	}
}

// firstPod returns the first pod, by UID, that has the volume mounted.
func firstPod(mounts map[state.PodUID]state.Mount) (first state.PodUID, has bool) {
	for pod := range mounts {
		if mounts[pod].Phase == state.Present && (!has || pod < first) {
			first, has = pod, true
		}
	}
	return first, has
}

// tried reports whether a Stage or Publish of the volume was begun: its driver can say why it does not
// succeed (CSI 1.13, NodeGetVolumeHealth).
func tried(v state.Volume) bool { return v.Stage.Phase != state.Absent || !v.Unmounted() }

// firstTried returns the first pod, by UID, for which a Publish was begun; "" if there is none.
func firstTried(mounts map[state.PodUID]state.Mount) (first state.PodUID) {
	for pod := range mounts {
		if mounts[pod].Phase != state.Absent && (first == "" || pod < first) {
			first = pod
		}
	}
	return first
}

// Question asks about a volume through the first of its pods, and also asks its driver's Controller
// service. A volume with a call in flight has no question.
func (a *Asker) Question(s stats.Subject) (q stats.Question, ok bool) {
	q, ok = a.ofNode(s)
	if is, _ := a.Volumes.Volume(state.VolumeID(s.Key)); s.Claim == "" || is.Call.Kind != plan.None {
		return q, ok
	}
	if ask, judged := a.Controller.Health(s.Claim, state.VolumeID(s.Key)); judged {
		if !ok {
			q = stats.Question{}
		}
		return alsoAsk(q, string(s.Driver), ask), true
	}
	return q, ok
}

// ofNode returns the question that this node can answer.
func (a *Asker) ofNode(s stats.Subject) (q stats.Question, ok bool) {
	d, up := a.Drivers()[s.Driver]
	if stats.IsStorageKey(s.Key) {
		return stats.Question{Source: string(s.Driver), Ask: func(ctx context.Context) (stats.Report, error) {
			found, err := d.StorageHealth(ctx)
			return stats.Report{Diagnosed: true, Conditions: conditions(found)}, err
		}}, up
	}
	is, known := a.Volumes.Volume(state.VolumeID(s.Key))
	pod, has := firstPod(is.Volume.Mounts)
	if !known || is.Call.Kind != plan.None {
		return stats.Question{}, false
	}
	v := is.Volume
	q.Source = string(s.Driver)
	if !has {
		q.Ask = func(ctx context.Context) (stats.Report, error) { return askHealth(ctx, d, v, firstTried(v.Mounts)) }
		return q, up && tried(v)
	}
	if up {
		q.Ask = func(ctx context.Context) (stats.Report, error) { return askDriver(ctx, d, v, pod) }
	} else if usage := a.Usage[s.Driver]; usage != nil {
		q.Source, q.Deadline = "fs", measureDeadline
		q.Ask = func(ctx context.Context) (stats.Report, error) { return measured(usage(ctx, v, pod)) }
	} else if b, _ := kind.Of(s.Driver); b.Mounts && v.Spec.Mode == state.Filesystem {
		q.Source = "statfs"
		q.Ask = func(ctx context.Context) (stats.Report, error) {
			return a.statfs(watch.Within(ctx, v), v.Mounts[pod].Target)
		}
	}
	if a.Mounts.IsFUSE(v.Mounts[pod].Target) {
		a.askServer(&q, v, pod)
	}
	return q, q.Ask != nil
}

// measureDeadline bounds a walk over all files of a volume.
const measureDeadline = 10 * time.Minute

// measured converts a built-in kind's answer about a volume that may have a limit.
func measured(u emptydir.Usage, err error) (stats.Report, error) {
	r := stats.Report{
		Bytes:     stats.Usage{Total: u.Total, Used: u.Used, Available: u.Available},
		Inodes:    stats.Usage{Total: u.Inodes, Used: u.InodesUsed, Available: u.InodesFree},
		Diagnosed: u.Limit > 0,
	}
	if u.Over() {
		r.Conditions = append(r.Conditions, stats.Condition{
			Reason: "OverLimit", Message: fmt.Sprintf("it holds %d bytes, its limit is %d: evict the pod",
				u.Used, u.Limit),
		})
	}
	if u.Partial && u.Limit > 0 {
		r.Conditions = append(r.Conditions, stats.Condition{
			Reason:  "PartlyMeasured",
			Message: "it holds more than could be counted",
		})
	}
	return r, err
}

// askDriver asks the driver for all that it can say about a volume.
func askDriver(ctx context.Context, d *csiclient.Driver, v state.Volume, pod state.PodUID) (stats.Report, error) {
	i := d.Info()
	if !i.Stats && !i.VolumeHealth {
		return stats.Report{}, stats.ErrNone
	}
	var r stats.Report
	var failed error
	if i.Stats {
		s, err := d.Stats(ctx, v, pod)
		if failed = err; err == nil {
			r = stats.Report{
				Measured: true, Bytes: stats.Usage(s.Bytes), Inodes: stats.Usage(s.Inodes), Diagnosed: i.OldCondition,
			}
		}
		if i.OldCondition && s.Abnormal {
			r.Conditions = []stats.Condition{{Message: s.Condition}}
		}
	}
	if i.VolumeHealth { // CSI has two calls, so that a driver can serve one without the other
		said, err := askHealth(ctx, d, v, pod)
		switch {
		case failed == nil:
			failed = err
		case err != nil:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
		r.Diagnosed, r.Conditions = said.Diagnosed, append(r.Conditions, said.Conditions...)
	}
	return r, failed
}

// askHealth asks the driver for what is wrong with a volume.
func askHealth(ctx context.Context, d *csiclient.Driver, v state.Volume, pod state.PodUID) (stats.Report, error) {
	found, err := d.VolumeHealth(ctx, v, pod)
	if err != nil {
		return stats.Report{}, err
	}
	return stats.Report{Diagnosed: true, Conditions: conditions(found)}, nil
}

func conditions(found []csiclient.Condition) []stats.Condition {
	var all []stats.Condition
	for _, c := range found {
		all = append(all, stats.Condition{
			Status: c.Status, Reason: c.Reason, Message: c.Message, AccessMode: c.AccessMode, VolumeMode: c.VolumeMode,
		})
	}
	return all
}

// askServer makes q ask first whether the process that serves the volume's mount lives, because the
// kernel sends no event when a FUSE server dies. The driver is not asked about a dead one.
func (a *Asker) askServer(q *stats.Question, v state.Volume, pod state.PodUID) {
	ask, target := q.Ask, v.Mounts[pod].Target
	q.Alive = func(ctx context.Context) error {
		err := a.Mounts.Served(watch.Within(ctx, v), target)
		if errors.Is(err, isolate.ErrLimit) {
			return nil // it was not asked, so it is not known to be dead
		}
		return err
	}
	q.Ask = func(ctx context.Context) (stats.Report, error) {
		err := a.Mounts.Served(watch.Within(ctx, v), target)
		if errors.Is(err, isolate.ErrLimit) {
			return stats.Report{}, err // it was not asked
		}
		if err != nil && ctx.Err() == nil {
			return stats.Report{Diagnosed: true, Conditions: []stats.Condition{{
				Status: "STORAGE_UNREACHABLE", Message: err.Error(),
				Kernel: true,
			}}}, nil
		}
		if ask == nil {
			return stats.Report{Diagnosed: true}, nil
		}
		r, err := ask(ctx)
		if errors.Is(err, stats.ErrNone) {
			err = nil
		}
		r.Diagnosed = true
		return r, err
	}
}

// statfs asks the kernel.
func (a *Asker) statfs(ctx context.Context, path string) (stats.Report, error) {
	st, err := a.Mounts.Kernel.Statfs(ctx, path)
	if err != nil {
		return stats.Report{}, err
	}
	unit := int64(st.Frsize)
	return stats.Report{
		Bytes: stats.Usage{
			Total: int64(st.Blocks) * unit, Used: int64(st.Blocks-st.Bfree) * unit,
			Available: int64(st.Bavail) * unit,
		},
		Inodes: stats.Usage{Total: int64(st.Files), Used: int64(st.Files - st.Ffree), Available: int64(st.Ffree)},
	}, nil
}
