package fc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.FC

// deviceTime is how long a device may take to appear after a scan.
const deviceTime = 30 * time.Second

// Config configures a Driver. Stager and Volumes are required.
type Config struct {
	Stager disk.Stager
	// Volumes returns the journal's records.
	Volumes func() []state.Volume
	// DeviceTime is for tests; 0 means 30 s.
	DeviceTime time.Duration
}

// Driver implements fc volumes. It is safe for concurrent use.
type Driver struct{ c Config }

// New returns a Driver.
func New(c Config) *Driver {
	if c.DeviceTime == 0 {
		c.DeviceTime = deviceTime
	}
	return &Driver{c}
}

// Stage finds the disk and mounts it.
func (d *Driver) Stage(ctx context.Context, v state.Volume) error {
	u, err := parse(*v.Spec)
	if err != nil {
		return poddir.Refused("Stage", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	if err := d.c.Stager.Begin(ctx, v); err != nil {
		return err
	}
	if err := d.stage(ctx, v, u); err != nil {
		return fmt.Errorf("volume %s: fc %v: %w", v.Spec.Name, u, err)
	}
	return nil
}

func (d *Driver) stage(ctx context.Context, v state.Volume, u unit) error {
	names, err := d.find(u)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if err := d.scan(u); err != nil {
			return err
		}
	}
	return d.c.Stager.Stage(ctx, v, d.search(u), u.want)
}

// search finds the unit's devices. The source does not say how many paths there are, so
// one is enough.
func (d *Driver) search(u unit) disk.Search {
	return disk.Search{
		Find: func() ([]string, bool, error) {
			names, err := d.find(u)
			return names, true, err
		},
		Scan: func() error { return d.scan(u) },
		Time: d.c.DeviceTime,
		None: "this node sees no port of the volume, or no port offers it the disk",
	}
}

// remote is a target's port as an adapter of this node sees it.
type remote struct{ host, channel, target, port string }

// rport matches the name of a remote port: rport-<host>:<channel>-<number>.
var rport = regexp.MustCompile(`^rport-(\d+):(\d+)-\d+$`)

// remotes returns the targets' ports that the node sees and has given a target number.
func (d *Driver) remotes() (found []remote, err error) {
	h := d.c.Stager.Host
	entries, err := os.ReadDir(filepath.Join(h.Sys, "class", "fc_remote_ports"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("this node has no Fibre Channel adapter: %w", err)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id := rport.FindStringSubmatch(e.Name())
		target := h.Attribute("class", "fc_remote_ports", e.Name(), "scsi_target_id")
		if id == nil || target == "" || target == "-1" { // -1: no target
			continue
		}
		port := strings.TrimPrefix(h.Attribute("class", "fc_remote_ports", e.Name(), "port_name"), "0x")
		found = append(found, remote{"host" + id[1], id[2], target, port})
	}
	return found, nil
}

// find returns the names of the unit's devices that exist now.
func (d *Driver) find(u unit) (names []string, err error) {
	if len(u.wwids) > 0 {
		return d.findByName(u)
	}
	remotes, err := d.remotes()
	if err != nil {
		return nil, err
	}
	for _, r := range remotes {
		if !slices.Contains(u.ports, r.port) {
			continue
		}
		address := strings.Join([]string{strings.TrimPrefix(r.host, "host"), r.channel, r.target, strconv.Itoa(int(u.lun))},
			":")
		found, err := disk.Blocks(filepath.Join(d.c.Stager.Host.Sys, "class", "scsi_device", address, "device"))
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return names, nil
}

// findByName returns the disks whose own names are among the unit's.
func (d *Driver) findByName(u unit) (names []string, err error) {
	h := d.c.Stager.Host
	entries, err := os.ReadDir(filepath.Join(h.Sys, "block"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if slices.Contains(u.wwids, h.Attribute("block", e.Name(), "device", "wwid")) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// scan makes the unit's ports scan for it. If the source names disks and not ports, all
// ports that the node sees scan for all their units.
func (d *Driver) scan(u unit) error {
	remotes, err := d.remotes()
	if err != nil {
		return err
	}
	for _, r := range remotes {
		lun := strconv.Itoa(int(u.lun))
		if len(u.wwids) > 0 {
			lun = "-"
		} else if !slices.Contains(u.ports, r.port) {
			continue
		}
		if err := d.c.Stager.Host.ScanLUN(r.host, r.channel, r.target, lun); err != nil {
			return err
		}
	}
	return nil
}

// Publish bind-mounts the staged disk at the pod's directory.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	return d.c.Stager.Publish(ctx, v, pod)
}

// Unpublish unmounts the volume from the pod.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	return d.c.Stager.Unpublish(ctx, v, pod)
}

// Unstage unmounts the disk and releases it, unless another volume uses it.
func (d *Driver) Unstage(ctx context.Context, v state.Volume) error {
	u, err := parse(*v.Spec)
	if err != nil {
		return poddir.Refused("Unstage", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	wwid, err := d.c.Stager.Unmount(ctx, v)
	if err != nil {
		return err
	}
	if wwid != "" { // otherwise the disk was never found
		if err := d.release(ctx, v, u, wwid); err != nil {
			return fmt.Errorf("volume %s: fc %v: %w", v.Spec.Name, u, err)
		}
	}
	return d.c.Stager.End(v)
}

func (d *Driver) release(ctx context.Context, v state.Volume, u unit, wwid string) error {
	for _, o := range d.c.Volumes() {
		if o.ID == v.ID || o.Spec.Driver != Kind || o.Stage.Phase == state.Absent {
			continue
		}
		other, err := parse(*o.Spec)
		if err != nil {
			return fmt.Errorf("volume %s may have the same disk: %w", o.Spec.Name, err)
		}
		// One volume may name the disk by a port, another by its own name. Free detects
		// that: once both are staged, the other's mount uses the disk.
		if u.same(other) {
			return nil
		}
	}
	search := d.search(u)
	search.Find = func() ([]string, bool, error) {
		names, err := d.find(u)
		if errors.Is(err, os.ErrNotExist) {
			return nil, true, nil // the adapter is gone, and the disk with it
		}
		return names, true, err
	}
	return d.c.Stager.Release(ctx, search, wwid)
}

// Expand makes the kernel read the disk's new size and grows its file system.
func (d *Driver) Expand(ctx context.Context, v state.Volume, _ state.PodUID, _ int64) (int64, error) {
	u, err := parse(*v.Spec)
	if err != nil {
		return 0, poddir.Refused("Expand", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	names, err := d.find(u)
	if err != nil {
		return 0, fmt.Errorf("volume %s: fc %v: %w", v.Spec.Name, u, err)
	}
	return d.c.Stager.Grow(ctx, v, names, u.want.FSType)
}
