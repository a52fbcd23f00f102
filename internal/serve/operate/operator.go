// Package operate carries out what operators ask of a node: find a volume's holders, forget a volume,
// retry, drain the node, accept lost records, register a driver.
//
// Owns: when each verb is refused, its line in the audit log, and the node's drain mode.
//
// Does not: serve the API or change a volume; the manager does.
package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Journal is the part of the journal that operators' verbs read and write.
type Journal interface {
	Recovery() state.Recovery
	AcceptRecovery(ctx context.Context) error
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Config is what an Operator needs; every field is required.
type Config struct {
	// Root is the directory below which volumes are mounted: absolute and clean.
	Root    string
	Manager *manager.Manager
	Journal Journal
	Audit   *audit.Log
	Kernel  *mount.Kernel
	// Silent lists the sources of pods that have not spoken yet.
	Silent func() []string
	// Stale finds uses of named volumes that the front end has not ended and for which no process holds the volume; if
	// end is set, it ends them.
	Stale func(ctx context.Context, end named.Ending) ([]named.Stale, error)
	// RetrySnapshot and RetryGroup end the wait of a snapshot or group snapshot after a failure.
	RetrySnapshot, RetryGroup func(controller.Key)
	// ForgetAttachment drops that a volume is attached, after its record is dropped, without a call.
	ForgetAttachment func(ctx context.Context, v state.Volume) error
	// ForgetClaim and ForgetSnapshot drop the record of a claim's volume or of a snapshot without a call.
	ForgetClaim, ForgetSnapshot func(ctx context.Context, key controller.Key, gone bool) (left string, err error)
	// Accepted carries out what waits for the word that lost records are accepted.
	Accepted func()
	// BootID names this boot of the node.
	BootID string
	Logger *slog.Logger
}

// Operator carries out operators' verbs on volumes and on the node (server.Operator, server.Drainer). Any
// goroutine may call its methods.
type Operator struct {
	c       Config
	holders holders.Finder

	draining sync.Mutex // held while the drain mode is changed
	mu       sync.Mutex // guards drain
	drain    storedDrain
}

// New returns an operator. LoadDrain resumes the drain of an earlier run.
func New(c Config) *Operator { return &Operator{c: c} }

// Who finds who holds a volume or a path (server.Operator).
func (o *Operator) Who(ctx context.Context, q server.WhoQuery) (holders.Report, error) {
	ask := holders.Query{Paths: []string{q.Path}}
	if q.Volume != "" {
		v, ok := o.c.Manager.Volume(q.Volume)
		if !ok {
			return holders.Report{}, fmt.Errorf("%w: volume %q is not known here", server.ErrNotFound, q.Volume)
		}
		ask = holdersOf(v.Volume)
	} else if !strings.HasPrefix(q.Path, "/") {
		return holders.Report{}, fmt.Errorf("%w: path: found %q, want an absolute path", server.ErrInvalid, q.Path)
	}
	return o.holders.Find(ctx, ask)
}

// holdersOf returns the query for a volume's holders: its paths and, for a block volume, its devices.
func holdersOf(v state.Volume) holders.Query {
	var q holders.Query
	for _, m := range v.Mounts {
		q.Paths = append(q.Paths, m.Target)
		if v.Spec.Mode == state.Block && m.Seen.BlockDevice && m.Seen.Dev != 0 {
			q.Devices = append(q.Devices, m.Seen.Dev)
		}
	}
	if v.Stage.Phase != state.Absent && v.Spec.StagePath != "" {
		q.Paths = append(q.Paths, v.Spec.StagePath)
	}
	return q
}

// Leftovers lists files and mounts that no record explains, and removes those that are safe to remove
// (server.Operator).
func (o *Operator) Leftovers(ctx context.Context, by audit.By, how server.GC) (items []leftover.Item, err error) {
	s := leftover.Scanner{Root: o.c.Root, Mounts: o.c.Kernel.List}
	if how == server.GCList {
		if items, err = s.Scan(ctx, o.Known()); err != nil {
			return nil, err
		}
		stale, err := o.stale(ctx, named.EndNone)
		return append(items, stale...), err
	}
	err = o.c.Audit.Do(audit.Act{By: by, Verb: "gc"}, func() (string, error) {
		if items, err = s.Remove(ctx, o.Known); err == nil {
			end := named.EndSafe
			if how == server.GCLost {
				end = named.EndLost
			}
			var stale []leftover.Item
			stale, err = o.stale(ctx, end)
			items = append(items, stale...)
		}
		var removed []string
		for _, i := range items {
			if i.Removed {
				removed = append(removed, i.Path)
			}
		}
		return fmt.Sprintf("removed %d of %d: %s", len(removed), len(items), strings.Join(removed, " ")), err
	})
	return items, err
}

// stale lists the uses of named volumes for which no process holds the volume, and ends those that end says.
func (o *Operator) stale(ctx context.Context, end named.Ending) (items []leftover.Item, err error) {
	found, err := o.c.Stale(ctx, end)
	for _, s := range found {
		why := fmt.Sprintf("its front end has not ended %s, and no process but csi-volmgr has the volume",
			strings.Join(slices.Sorted(maps.Keys(s.Uses)), ", "))
		if s.EngineRuns {
			why += "; the engine that began it runs: if it has lost the end, csi-volmgr gc --yes --lost-uses"
		}
		items = append(items, leftover.Item{
			Kind: "use", Path: "volume " + s.Name, Safe: !s.EngineRuns, Removed: s.Ended, Why: why,
		})
	}
	return items, err
}

// Known returns the pods and paths that records explain, and why there may be records that it does not
// know.
func (o *Operator) Known() leftover.Known {
	k := leftover.Known{Pods: map[state.PodUID]bool{}, Paths: map[string]bool{}}
	if silent := o.c.Silent(); len(silent) > 0 {
		k.Unsure = strings.Join(silent, ", ")
	}
	if r := o.c.Journal.Recovery(); r.Lost() {
		k.Unsure = "the journal may have lost records (" + r.Why + ")"
	}
	for _, p := range o.c.Manager.Pods() {
		k.Pods[p.Pod.UID] = true
	}
	for _, v := range o.c.Manager.Volumes() {
		if v.Quarantined != "" {
			k.Unsure = fmt.Sprintf("the record of volume %s cannot be read, so its paths are unknown", v.Volume.ID)
		}
		k.Paths[v.Volume.Spec.StagePath] = true
		for uid, m := range v.Volume.Mounts {
			k.Pods[uid], k.Paths[m.Target], k.Paths[m.DevicePath] = true, true, true
		}
	}
	delete(k.Paths, "")
	return k
}

// mountsOf returns the record's paths at which the kernel shows a mount. An error means that the kernel
// could not be asked about all of them.
func (o *Operator) mountsOf(ctx context.Context, v manager.VolumeStatus) ([]string, error) {
	if v.Quarantined != "" {
		return nil, fmt.Errorf("%w: the record of volume %s cannot be read (%s), so its mounts are unknown; "+
			"look with csi-volmgr gc --dry-run, then use --even-mounted",
			server.ErrConflict, v.Volume.ID, v.Quarantined)
	}
	var mounted []string
	var failed error
	for _, path := range holdersOf(v.Volume).Paths {
		seen, err := o.c.Kernel.Look(ctx, path)
		if err != nil {
			failed = fmt.Errorf("%w: cannot tell whether volume %s is mounted: %w", server.ErrConflict, v.Volume.ID, err)
		} else if seen.Mounted {
			mounted = append(mounted, path)
		}
	}
	return mounted, failed
}

// Retry ends the back-off of a volume or a snapshot, or sets the step by which a stuck unmount is made
// (server.Operator).
func (o *Operator) Retry(ctx context.Context, by audit.By, r server.Retry) error {
	if r.Snapshot != "" {
		verb, retry := "retry snapshot", o.c.RetrySnapshot
		if r.Group {
			verb, retry = "retry groupsnapshot", o.c.RetryGroup
		}
		return o.c.Audit.Do(audit.Act{By: by, Verb: verb, Object: r.Snapshot}, func() (string, error) {
			namespace, name, _ := strings.Cut(r.Snapshot, "/")
			retry(controller.Key{Namespace: namespace, Name: name})
			return "", nil
		})
	}
	act := audit.Act{By: by, Verb: "retry", Object: string(r.Volume), Reason: r.Reason}
	if r.Step != state.UnmountNormal {
		act.Detail = "unmount by step " + r.Step.String()
	}
	return o.c.Audit.Do(act, func() (string, error) {
		if r.Step == state.UnmountNormal {
			o.c.Manager.RetryNow(r.Volume)
		} else if err := o.c.Manager.UnmountBy(ctx, r.Volume, r.Step); errors.Is(err, manager.ErrNotStuck) {
			return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
		} else if err != nil {
			return "", err
		}
		_ = o.c.Manager.Settle(ctx) // the retry is in effect even if the wait is cut short
		return "", nil
	})
}
