package emptydir

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/quota"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// limit holds a new volume on the node's disk to its limit, where the file
// system can.
func (d *Driver) limit(dir, scratch poddir.Dir, m medium) error {
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

// unlimit gives back what limit took, once the volume's directory is gone.
func (d *Driver) unlimit(scratch poddir.Dir) error {
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

// Usage is how full a volume is. Fields are bytes and inodes, as statfs(2) has
// them for the pod's user.
type Usage struct {
	Total, Used, Available         int64
	Inodes, InodesUsed, InodesFree int64
	// Limit is the volume's own limit in bytes, 0 where it has none.
	Limit int64
	// Partial: more is used, which could not be counted.
	Partial bool
}

// Over reports whether the volume holds more than it may. Its pod is then to be
// evicted by the agent that runs it; nothing is removed here.
func (u Usage) Over() bool { return u.Limit > 0 && u.Used > u.Limit }

// Usage tells how full the volume is: what is mounted there by its file system,
// and a directory of the node's disk by a walk over all of it, which may take as
// long as there are files.
func (d *Driver) Usage(ctx context.Context, v state.Volume, pod state.PodUID) (Usage, error) {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return Usage{}, err
	}
	m, err := parseMedium(*v.Spec)
	if err != nil {
		return Usage{}, err
	}
	if m.fsType == "tmpfs" {
		m.sizeBytes = max(m.sizeBytes, v.SizeBytes)
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
	u := Usage{
		Total: int64(st.Blocks) * st.Frsize, Used: int64(st.Blocks-st.Bfree) * st.Frsize,
		Available: int64(st.Bavail) * st.Frsize,
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
