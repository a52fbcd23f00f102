package emptydir

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/quota"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// setLimit sets the size limit of a new volume on the node's disk, if the file system can
// enforce it.
func (d *Driver) setLimit(dir, scratch poddir.Dir, m medium) error {
	if d.c.Quotas == nil || m.fsType != "" || m.sizeBytes == 0 {
		return nil
	}
	f, err := dir.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := scratch.Make(scratchMode)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := d.c.Quotas.Limit(f, s, m.sizeBytes); !errors.Is(err, quota.ErrNone) {
		return err
	}
	return nil
}

// releaseLimit releases what setLimit allocated, after the volume's directory was removed.
func (d *Driver) releaseLimit(scratch poddir.Dir) error {
	if d.c.Quotas == nil {
		return nil
	}
	s, err := scratch.Open()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.Close()
	return d.c.Quotas.Release(s)
}

// Usage is how full a volume is, in bytes and inodes, as statfs(2) reports them to the
// pod's user.
type Usage struct {
	Total, Used, Available         int64
	Inodes, InodesUsed, InodesFree int64
	// Limit is the volume's own limit in bytes, or 0 if it has none.
	Limit int64
	// Partial is true if some of the usage could not be counted.
	Partial bool
}

// Over reports whether the volume exceeds its limit. The agent that runs the pod should
// then evict it; this package removes nothing.
func (u Usage) Over() bool { return u.Limit > 0 && u.Used > u.Limit }

// Usage measures how full the volume is. For a mounted file system it asks that; for a
// directory on the node's disk it walks through all files, which takes correspondingly
// long.
func (d *Driver) Usage(ctx context.Context, v state.Volume, pod state.PodUID) (Usage, error) {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return Usage{}, err
	}
	m, err := parseMedium(v)
	if err != nil {
		return Usage{}, err
	}
	f, err := dir.Open()
	if err != nil {
		return Usage{}, err
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: dir.Path(), Err: err}
	}
	unit := int64(st.Frsize)
	u := Usage{
		Total: int64(st.Blocks) * unit, Used: int64(st.Blocks-st.Bfree) * unit,
		Available: int64(st.Bavail) * unit,
		Inodes:    int64(st.Files), InodesUsed: int64(st.Files - st.Ffree), InodesFree: int64(st.Ffree), Limit: m.sizeBytes,
	}
	if m.fsType != "" {
		return u, nil
	}
	held, err := quota.Measure(ctx, f)
	if err != nil {
		return Usage{}, fmt.Errorf("measure %s: %w", dir.Path(), err)
	}
	u.Used, u.InodesUsed, u.Partial = held.Bytes, held.Inodes, held.Partial
	if u.Limit > 0 {
		u.Total = min(u.Total, u.Limit)
		u.Available = max(0, min(u.Available, u.Limit-u.Used))
	}
	return u, nil
}
