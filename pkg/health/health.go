// Package health asks drivers, built-in kinds and the kernel for the usage and the health
// of volumes.
//
// Owns: what is asked about which volume, of whom, and what an answer means.
//
// Does not: decide when to ask, or keep answers; stats does.
package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/emptydir"
	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/watch"
)

// Volumes are the manager's.
type Volumes interface {
	// EachVolume yields every volume; yield must not call the manager.
	EachVolume(yield func(manager.VolumeStatus) bool)
	Volume(id state.VolumeID) (manager.VolumeStatus, bool)
}

// Controller asks drivers' Controller services (controller.Controller).
type Controller interface {
	// Judged returns the volumes of claims that Health is for; nil for none. The caller may change the map.
	Judged() map[state.VolumeID]controller.Judged
	// Health returns what asks for one; false where it cannot be asked for now.
	Health(claim string, id state.VolumeID) (ask func(context.Context) ([]csiclient.Condition, error), ok bool)
}

// Usage says how full a volume of a built-in kind is that does not mount.
type Usage func(context.Context, state.Volume, state.PodUID) (emptydir.Usage, error)

// Asker asks for the usage and health of volumes; every field is required. Any goroutine may call its methods.
type Asker struct {
	Volumes Volumes
	// Drivers returns the registered drivers. The caller does not change what it returns.
	Drivers    func() map[state.DriverName]*csiclient.Driver
	Controller Controller
	// Usage has the built-in kinds that say themselves how full a volume is.
	Usage map[state.DriverName]Usage
	// Mounts knows which volumes are FUSE file systems, and which of those are dead.
	Mounts *watch.Mounts
}

// Subjects yields what may be asked how full it is and how it fares: volumes
// that a pod has, those of claims, and drivers' storage. It is a look at 1,000 volumes every 10
// seconds while any is watched, so nothing is made for a volume.
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
	controlled := a.Controller.Judged()
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
			continue // it has nothing to say
		}
		limited := usage != nil && emptydir.Limited(*spec)
		if !yield(stats.Subject{
			Key: string(s.Volume.ID), Driver: spec.Driver, Claim: spec.Claim,
			Watched: mortal || limited || judged || judges[spec.Driver], Mortal: mortal,
		}) {
			return
		}
	}
	for id, is := range controlled { // nothing of them is on this node
		if !yield(stats.Subject{Key: string(id), Driver: is.Driver, Claim: is.Claim, Watched: true}) {
			return
		}
	}
}

// firstPod is the first by name of the pods that have the volume.
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

// firstTried is the first by name of the pods for which a Publish was begun; "" for none.
func firstTried(mounts map[state.PodUID]state.Mount) (first state.PodUID) {
	for pod := range mounts {
		if mounts[pod].Phase != state.Absent && (first == "" || pod < first) {
			first = pod
		}
	}
	return first
}

// Question asks for a volume through the first of its pods, and its driver's Controller service besides.
// A volume with a call in flight has no question.
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

// ofNode asks what is known on this node.
func (a *Asker) ofNode(s stats.Subject) (q stats.Question, ok bool) {
	d, up := a.Drivers()[s.Driver]
	if stats.OfStorage(s.Key) {
		return stats.Question{Source: string(s.Driver), Ask: func(ctx context.Context) (stats.Report, error) {
			found, err := d.StorageHealth(ctx)
			return stats.Report{Judged: true, Conditions: conditions(found)}, err
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
		q.Ask = func(context.Context) (stats.Report, error) { return statfs(v.Mounts[pod].Target) }
	}
	if a.Mounts.IsFUSE(v.Mounts[pod].Target) {
		a.askServer(&q, v, pod)
	}
	return q, q.Ask != nil
}

// measureDeadline bounds a walk over all files of a volume.
const measureDeadline = 10 * time.Minute

// measured is what a built-in kind says of a volume that may have a limit.
func measured(u emptydir.Usage, err error) (stats.Report, error) {
	r := stats.Report{
		Bytes:  stats.Usage{Total: u.Total, Used: u.Used, Available: u.Available},
		Inodes: stats.Usage{Total: u.Inodes, Used: u.InodesUsed, Available: u.InodesFree},
		Judged: u.Limit > 0,
	}
	if u.Over() {
		r.Conditions = append(r.Conditions, stats.Condition{
			Reason: "OverLimit", Message: fmt.Sprintf("it holds %d bytes, its limit is %d: the pod's owner is to evict it",
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

// askDriver asks all that the driver can say of a volume.
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
				Measured: true, Bytes: stats.Usage(s.Bytes), Inodes: stats.Usage(s.Inodes), Judged: i.OldCondition,
			}
		}
		if i.OldCondition && s.Abnormal {
			r.Conditions = []stats.Condition{{Message: s.Condition}}
		}
	}
	if i.VolumeHealth { // CSI made two calls of it so that one tells what the other cannot
		said, err := askHealth(ctx, d, v, pod)
		switch {
		case failed == nil:
			failed = err
		case err != nil:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
		r.Judged, r.Conditions = said.Judged, append(r.Conditions, said.Conditions...)
	}
	return r, failed
}

// askHealth asks what the driver says is wrong with a volume.
func askHealth(ctx context.Context, d *csiclient.Driver, v state.Volume, pod state.PodUID) (stats.Report, error) {
	found, err := d.VolumeHealth(ctx, v, pod)
	if err != nil {
		return stats.Report{}, err
	}
	return stats.Report{Judged: true, Conditions: conditions(found)}, nil
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

// askServer has the volume's mount asked whether the process that serves it lives:
// of the death of a FUSE server the kernel sends no event. Its driver is not asked
// about a dead one.
func (a *Asker) askServer(q *stats.Question, v state.Volume, pod state.PodUID) {
	ask, target := q.Ask, v.Mounts[pod].Target
	q.Alive = func(ctx context.Context) error {
		err := a.Mounts.Served(watch.Within(ctx, v), target)
		if errors.Is(err, isolate.ErrLimit) {
			return nil // it was not asked, so nothing is known of its death
		}
		return err
	}
	q.Ask = func(ctx context.Context) (stats.Report, error) {
		err := a.Mounts.Served(watch.Within(ctx, v), target)
		if errors.Is(err, isolate.ErrLimit) {
			return stats.Report{}, err // it was not asked
		}
		if err != nil && ctx.Err() == nil {
			return stats.Report{Judged: true, Conditions: []stats.Condition{{
				Status: "STORAGE_UNREACHABLE", Message: err.Error(),
				Kernel: true,
			}}}, nil
		}
		if ask == nil {
			return stats.Report{Judged: true}, nil
		}
		r, err := ask(ctx)
		if errors.Is(err, stats.ErrNone) {
			err = nil
		}
		r.Judged = true
		return r, err
	}
}

// statfs asks the kernel. It may hang as long as the storage does, which holds
// up no other question.
func statfs(path string) (stats.Report, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return stats.Report{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	return stats.Report{
		Bytes: stats.Usage{
			Total: int64(st.Blocks) * st.Frsize, Used: int64(st.Blocks-st.Bfree) * st.Frsize,
			Available: int64(st.Bavail) * st.Frsize,
		},
		Inodes: stats.Usage{Total: int64(st.Files), Used: int64(st.Files - st.Ffree), Available: int64(st.Ffree)},
	}, nil
}
