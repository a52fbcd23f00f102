package iscsi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.ISCSI

// deviceTime is how long a device may take to appear after the login.
const deviceTime = 30 * time.Second

// Config configures a Driver. All fields except Databases and DeviceTime are required.
type Config struct {
	Stager disk.Stager
	// Secret reads the secret with the CHAP names and passwords.
	Secret func(ctx context.Context, ref state.SecretRef) (map[string]string, error)
	// Volumes returns the journal's records.
	Volumes func() []state.Volume
	// Warn takes a message for the operator, with keys and values as slog.Logger.Warn does.
	Warn func(message string, args ...any)
	// Databases are the directories that may hold open-iscsi's records; nil means the
	// usual ones.
	Databases []string
	// DeviceTime is for tests; 0 means 30 s.
	DeviceTime time.Duration
}

// Driver implements iscsi volumes. It is safe for concurrent use, with one Stage or Unstage
// at a time for a target ([Shared]): each logs in or out.
type Driver struct{ c Config }

// New returns a Driver.
func New(c Config) *Driver {
	if c.Databases == nil {
		c.Databases = databases()
	}
	if c.DeviceTime == 0 {
		c.DeviceTime = deviceTime
	}
	return &Driver{c}
}

// Shared returns the name of the target that a volume shares with others, and whether Stage
// needs the volume's secret. Both are zero for a source that Stage refuses.
func Shared(spec state.Spec) (target string, secret bool) {
	t, err := parse(spec)
	if err != nil {
		return "", false
	}
	return t.iqn, t.needsSecret()
}

// Stage logs in to the target at every portal, finds the disk and mounts it. It
// succeeds if at least one portal answers.
func (d *Driver) Stage(ctx context.Context, v state.Volume) error {
	t, err := parse(*v.Spec)
	if err != nil {
		return poddir.Refused("Stage", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	if err := d.c.Stager.Begin(ctx, v); err != nil {
		return err
	}
	if err := d.stage(ctx, v, t); err != nil {
		return fmt.Errorf("volume %s: iscsi %s lun %d: %w", v.Spec.Name, t.iqn, t.lun, err)
	}
	return nil
}

func (d *Driver) stage(ctx context.Context, v state.Volume, t target) error {
	var secret map[string]string
	if t.needsSecret() {
		var err error
		if secret, err = d.c.Secret(ctx, v.Spec.StageRef); err != nil {
			return err
		}
	}
	if t.iface != t.base {
		if err := d.makeIface(ctx, t); err != nil {
			return err
		}
	}
	var sessions []session
	var failed error
	for _, p := range t.portals {
		s, err := d.ensureSession(ctx, t, p, secret)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		sessions = append(sessions, s)
	}
	if len(sessions) == 0 {
		return failed
	}
	if failed != nil {
		d.c.Warn("some portals cannot be reached", "volume", string(v.ID), "driver", string(Kind), "err", failed.Error())
	}
	return d.c.Stager.Stage(ctx, v, d.search(t, sessions), t.want)
}

// ensureSession returns the session at a portal, after logging in if there is none, and makes
// it scan for the logical unit.
func (d *Driver) ensureSession(ctx context.Context, t target, p portal, secret map[string]string) (session, error) {
	s, ok, err := d.session(t, p)
	if err != nil {
		return session{}, err
	}
	if !ok {
		if err := d.login(ctx, t, p, secret); err != nil {
			return session{}, err
		}
		if s, ok, err = d.session(t, p); err != nil || !ok {
			return session{}, fmt.Errorf("logged in at %s, but the kernel has no such session (%v)", p, err)
		}
	}
	return s, d.c.Stager.Host.ScanLUN(s.host, "0", s.id, strconv.Itoa(int(t.lun)))
}

// search finds the logical unit's devices, one per session.
func (d *Driver) search(t target, sessions []session) disk.Search {
	return disk.Search{
		Find: func() (names []string, all bool, err error) {
			all = true
			for _, s := range sessions {
				found, err := s.blocks(strconv.Itoa(int(t.lun)))
				if err != nil {
					return nil, false, err
				}
				if len(found) == 0 {
					all = false
				}
				names = append(names, found...)
			}
			return names, all, nil
		},
		Scan: func() (err error) {
			for _, s := range sessions {
				err = errors.Join(err, d.c.Stager.Host.ScanLUN(s.host, "0", s.id, strconv.Itoa(int(t.lun))))
			}
			return err
		},
		Time: d.c.DeviceTime,
		None: fmt.Sprintf("the target does not offer lun %d to this initiator", t.lun),
	}
}

// makeIface makes an iscsiadm interface with the initiator name that the volume wants.
func (d *Driver) makeIface(ctx context.Context, t target) error {
	// If another volume uses the same name, the interface exists with the same
	// settings, and making it again fails.
	made := d.iscsiadm(ctx, t, "-m", "iface", "-I", t.iface, "-o", "new")
	if err := d.iscsiadm(ctx, t, "-m", "iface", "-I", t.iface, "-o", "update", "-n", "iface.initiatorname", "-v",
		t.initiator); err != nil {
		return errors.Join(made, err)
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

// Unstage unmounts the disk, releases it unless another volume uses it, and ends the
// sessions that no other volume uses.
func (d *Driver) Unstage(ctx context.Context, v state.Volume) error {
	t, err := parse(*v.Spec)
	if err != nil {
		return poddir.Refused("Unstage", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	wwid, err := d.c.Stager.Unmount(ctx, v)
	if err != nil {
		return err
	}
	others, err := d.others(v)
	if err == nil {
		err = d.release(ctx, t, others, wwid)
	}
	if err != nil {
		return fmt.Errorf("volume %s: iscsi %s lun %d: %w", v.Spec.Name, t.iqn, t.lun, err)
	}
	return d.c.Stager.End(v)
}

// release frees the disk and ends the sessions.
func (d *Driver) release(ctx context.Context, t target, others []target, wwid string) error {
	sessions := map[portal]session{}
	for _, p := range t.portals {
		s, ok, err := d.session(t, p)
		if err != nil {
			return err
		}
		if ok {
			sessions[p] = s
		}
	}
	shared := slices.ContainsFunc(others, func(o target) bool { return o.iqn == t.iqn && o.lun == t.lun })
	if !shared {
		if err := d.c.Stager.Release(ctx, d.search(t, slices.Collect(maps.Values(sessions))), wwid); err != nil {
			return err
		}
	}
	for _, p := range t.portals {
		if slices.ContainsFunc(others, func(o target) bool {
			return o.iqn == t.iqn && o.iface == t.iface && slices.Contains(o.portals, p)
		}) {
			continue
		}
		if err := d.endSession(ctx, t, p, sessions[p]); err != nil {
			return err
		}
	}
	if t.iface == t.base || slices.ContainsFunc(others, func(o target) bool { return o.iface == t.iface }) {
		return nil
	}
	err := d.iscsiadm(ctx, t, "-m", "iface", "-I", t.iface, "-o", "delete")
	if disk.Exited(err, exitNone) || errors.Is(err, program.ErrMissing) && !hasIface(d.c.Databases, t) {
		return nil
	}
	return err
}

// endSession logs out of a session that this package began, once it has no devices left.
func (d *Driver) endSession(ctx context.Context, t target, p portal, s session) error {
	mine, err := d.isMarked(t, p)
	if err != nil || !mine {
		return err
	}
	if s.dir != "" {
		left, err := s.blocks("*")
		if err != nil {
			return err
		}
		if len(left) > 0 {
			d.c.Warn("kept a session that has devices of no volume on this node", "driver", string(Kind), "portal",
				p.String(), "devices", left)
			return os.Remove(d.markPath(t, p))
		}
	}
	return d.logout(ctx, t, p)
}

// Expand makes the kernel read the disk's new size and grows its file system.
func (d *Driver) Expand(ctx context.Context, v state.Volume, _ state.PodUID, _ int64) (int64, error) {
	t, err := parse(*v.Spec)
	if err != nil {
		return 0, poddir.Refused("Expand", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	var names []string
	for _, p := range t.portals {
		s, ok, err := d.session(t, p)
		if err != nil {
			return 0, err
		}
		if ok {
			found, err := s.blocks(strconv.Itoa(int(t.lun)))
			if err != nil {
				return 0, err
			}
			names = append(names, found...)
		}
	}
	return d.c.Stager.Grow(ctx, v, names, t.want.FSType)
}
