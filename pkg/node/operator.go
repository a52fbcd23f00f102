package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/holders"
	"github.com/csi-volmgr/csi-volmgr/pkg/leftover"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Who finds who holds a volume or a path (server.Operator).
func (n *Node) Who(ctx context.Context, q server.WhoQuery) (holders.Report, error) {
	ask := holders.Query{Paths: []string{q.Path}}
	if q.Volume != "" {
		v, ok := n.manager.Volume(q.Volume)
		if !ok {
			return holders.Report{}, fmt.Errorf("%w: volume %q is not known here", server.ErrNotFound, q.Volume)
		}
		ask = holdersOf(v.Volume)
	} else if !strings.HasPrefix(q.Path, "/") {
		return holders.Report{}, fmt.Errorf("%w: path: found %q, want an absolute one", server.ErrInvalid, q.Path)
	}
	return n.holders.Find(ctx, ask)
}

// holdersOf says where a volume is, and on which device where it is one.
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

// Leftovers lists what nobody answers for, and removes what is safe (server.Operator).
func (n *Node) Leftovers(ctx context.Context, by audit.By, remove bool) (items []leftover.Item, err error) {
	s := leftover.Scanner{Root: n.cfg.Root, Mounts: n.kernel.List}
	if !remove {
		return s.Scan(ctx, n.known())
	}
	err = n.audit.Do(audit.Act{By: by, Verb: "gc"}, func() (string, error) {
		items, err = s.Remove(ctx, n.known)
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

// known is what somebody answers for.
func (n *Node) known() leftover.Known {
	k := leftover.Known{Pods: map[state.PodUID]bool{}, Paths: map[string]bool{}}
	if silent := n.Views().NotReady(); len(silent) > 0 {
		k.Unsure = strings.Join(silent, ", ")
	}
	if r := n.journal.Recovery(); r.Why != "" {
		k.Unsure = "the journal may have lost records (" + r.Why + ")"
	}
	for _, p := range n.manager.Pods() {
		k.Pods[p.Pod.UID] = true
	}
	for _, v := range n.manager.Volumes() {
		if v.Quarantined != "" {
			k.Unsure = fmt.Sprintf("the record of volume %s cannot be read, so it is not known which paths are its", v.Volume.ID)
		}
		k.Paths[v.Volume.Spec.StagePath] = true
		for uid, m := range v.Volume.Mounts {
			k.Pods[uid], k.Paths[m.Target], k.Paths[m.DevicePath] = true, true, true
		}
	}
	delete(k.Paths, "")
	return k
}

// Forget drops a record (server.Operator). It is refused while the kernel shows
// mounts of the volume, or cannot tell, unless f says otherwise.
func (n *Node) Forget(ctx context.Context, by audit.By, f server.Forget) error {
	act := audit.Act{By: by, Verb: "forget", Object: string(f.Volume), Reason: f.Reason}
	if f.Mounted {
		act.Detail = "even if it is mounted"
	}
	return n.audit.Do(act, func() (string, error) {
		v, ok := n.manager.Volume(f.Volume)
		if !ok {
			return "", fmt.Errorf("%w: volume %q is not known here", server.ErrNotFound, f.Volume)
		}
		mounted, err := n.mountsOf(ctx, v)
		if err == nil && len(mounted) > 0 {
			err = fmt.Errorf("%w: volume %s is mounted at %s: unmount it first (csi-volmgr who says who uses it), or have it "+
				"forgotten all the same with --even-mounted",
				server.ErrConflict, f.Volume, strings.Join(mounted, ", "))
		}
		if err != nil && !f.Mounted {
			return "", err
		}
		if err := n.manager.Forget(ctx, f.Volume); errors.Is(err, manager.ErrInUse) {
			return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
		} else if err != nil {
			return "", err
		}
		return "it was left at: " + strings.Join(mounted, ", "), nil
	})
}

// mountsOf are the paths of a record at which the kernel shows a mount. An error
// says that it could not be asked about all of them.
func (n *Node) mountsOf(ctx context.Context, v manager.VolumeStatus) ([]string, error) {
	if v.Quarantined != "" {
		return nil, fmt.Errorf("%w: the record of volume %s cannot be read (%s), so it is not known where it is mounted; "+
			"look with csi-volmgr gc --dry-run, then use --even-mounted",
			server.ErrConflict, v.Volume.ID, v.Quarantined)
	}
	var mounted []string
	var failed error
	for _, path := range holdersOf(v.Volume).Paths {
		seen, err := n.kernel.Look(ctx, path)
		if err != nil {
			failed = fmt.Errorf("%w: it is not known whether volume %s is mounted: %w", server.ErrConflict, v.Volume.ID, err)
		} else if seen.Mounted {
			mounted = append(mounted, path)
		}
	}
	return mounted, failed
}

// Retry ends the pauses of a volume, or has an unmount of it that does not
// succeed made by a step (server.Operator).
func (n *Node) Retry(ctx context.Context, by audit.By, r server.Retry) error {
	act := audit.Act{By: by, Verb: "retry", Object: string(r.Volume), Reason: r.Reason}
	if r.Step != state.UnmountNormal {
		act.Detail = "unmount by step " + r.Step.String()
	}
	return n.audit.Do(act, func() (string, error) {
		if r.Step == state.UnmountNormal {
			n.manager.RetryNow(r.Volume)
		} else if err := n.manager.UnmountBy(ctx, r.Volume, r.Step); errors.Is(err, manager.ErrNotStuck) {
			return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
		} else if err != nil {
			return "", err
		}
		n.show(ctx)
		return "", nil
	})
}
