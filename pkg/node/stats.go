package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/emptydir"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/stats"
)

// subjects lists what may be asked how full it is and how it fares: volumes
// that a pod has and of which no call is in flight, and drivers' storage.
func (n *Node) subjects() []stats.Subject {
	n.mu.Lock()
	drivers := maps.Clone(n.drivers)
	n.mu.Unlock()
	var all []stats.Subject
	for _, s := range n.manager.Volumes() {
		if subject, ok := n.volumeSubject(s, drivers); ok {
			all = append(all, subject)
		}
	}
	for name, c := range drivers {
		if c.driver.Info().StorageHealth {
			all = append(all, stats.Subject{
				Key: "driver " + string(name), Driver: name, Source: string(name),
				Ask: func(ctx context.Context) (stats.Report, error) {
					found, err := c.driver.StorageHealth(ctx)
					return stats.Report{Judged: true, Conditions: conditions(found)}, err
				},
			})
		}
	}
	return all
}

// volumeSubject asks for a volume through the first of its pods; one of which a
// call is in flight is listed, and not asked for.
func (n *Node) volumeSubject(s manager.VolumeStatus, drivers map[state.DriverName]*connection) (stats.Subject, bool) {
	v := s.Volume
	for _, pod := range slices.Sorted(maps.Keys(v.Mounts)) {
		if v.Mounts[pod].Phase != state.Present {
			continue
		}
		subject := stats.Subject{Key: string(v.ID), Driver: v.Spec.Driver, Claim: v.Spec.Claim, Source: string(v.Spec.Driver)}
		if c, up := drivers[v.Spec.Driver]; up {
			subject.Ask = func(ctx context.Context) (stats.Report, error) { return askDriver(ctx, c.driver, v, pod) }
		} else if n.builtins[v.Spec.Driver].usage != nil {
			subject.Source, subject.Deadline = "fs", measureDeadline
			subject.Ask = func(ctx context.Context) (stats.Report, error) {
				return measured(n.builtins[v.Spec.Driver].usage(ctx, v, pod))
			}
		} else if n.builtins[v.Spec.Driver].mounts && v.Spec.Mode == state.Filesystem {
			subject.Source = "statfs"
			subject.Ask = func(context.Context) (stats.Report, error) { return statfs(v.Mounts[pod].Target) }
		}
		if n.isFuse(v.Mounts[pod].Target) {
			n.feels(&subject, v.Mounts[pod].Target)
		}
		if s.Call.Kind != plan.None {
			subject.Ask = nil
		}
		return subject, true
	}
	return stats.Subject{}, false
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
			Reason: "OverLimit", Message: fmt.Sprintf("it holds %d bytes, its limit is %d: whoever owns the pod is to evict it", u.Used, u.Limit),
		})
	}
	if u.Partial && u.Limit > 0 {
		r.Conditions = append(r.Conditions, stats.Condition{Reason: "PartlyMeasured", Message: "it holds more than could be counted"})
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
	if i.Stats {
		s, err := d.Stats(ctx, v, pod)
		if err != nil {
			return stats.Report{}, err
		}
		r = stats.Report{Bytes: stats.Usage(s.Bytes), Inodes: stats.Usage(s.Inodes), Judged: i.OldCondition}
		if i.OldCondition && s.Abnormal {
			r.Conditions = []stats.Condition{{Message: s.Condition}}
		}
	}
	if i.VolumeHealth {
		found, err := d.VolumeHealth(ctx, v, pod)
		if err != nil {
			return stats.Report{}, err
		}
		r.Judged, r.Conditions = true, append(r.Conditions, conditions(found)...)
	}
	return r, nil
}

func conditions(found []csiclient.Condition) []stats.Condition {
	var all []stats.Condition
	for _, c := range found {
		all = append(all, stats.Condition{Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return all
}

// feels has the subject's mount asked whether the process that serves it lives:
// of the death of a FUSE server the kernel tells nobody. Its driver is not asked
// about a dead one.
func (n *Node) feels(subject *stats.Subject, target string) {
	ask := subject.Ask
	subject.Alive = func(ctx context.Context) error { return n.aliveFUSE(ctx, target) }
	subject.Ask = func(ctx context.Context) (stats.Report, error) {
		if err := n.aliveFUSE(ctx, target); err != nil && ctx.Err() == nil {
			return stats.Report{Judged: true, Conditions: []stats.Condition{{Status: "STORAGE_UNREACHABLE", Message: err.Error(), Kernel: true}}}, nil
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

// aliveFUSE returns nil if the FUSE file system at target has a server. It is
// asked itself only where it has none, or the kernel does not say: a server that
// does not answer would have the question hold the mount, which could not be
// unmounted any more.
func (n *Node) aliveFUSE(ctx context.Context, target string) error {
	if served, err := n.kernel.FUSEServed(ctx, target); err == nil && served {
		return nil
	}
	return n.kernel.Probe(ctx, target)
}

// isFuse reports whether a FUSE file system was mounted at path when the mount
// table was read last.
func (n *Node) isFuse(path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.fuse[path]
	return ok
}

// statfs asks the kernel. It may hang as long as the storage does, which holds
// up no other question.
func statfs(path string) (stats.Report, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return stats.Report{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	return stats.Report{
		Bytes:  stats.Usage{Total: int64(st.Blocks) * st.Frsize, Used: int64(st.Blocks-st.Bfree) * st.Frsize, Available: int64(st.Bavail) * st.Frsize},
		Inodes: stats.Usage{Total: int64(st.Files), Used: int64(st.Files - st.Ffree), Available: int64(st.Ffree)},
	}, nil
}

// Stats lists what volumes and drivers last said of themselves (server.Stats).
func (n *Node) Stats() []stats.Status { return n.stats.Stats() }
