package iscsi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// session is an iSCSI session of the kernel.
type session struct {
	dir  string // in sysfs
	host string // such as host3
	id   string // of the target on that host
}

// session returns the kernel's session with the target at the portal; the bool is false
// if there is none.
func (d *Driver) session(t target, p portal) (session, bool, error) {
	h := d.c.Stager.Host
	class := filepath.Join(h.Sys, "class", "iscsi_session")
	entries, err := os.ReadDir(class)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the class is missing until the module is loaded
		return session{}, false, err
	}
	for _, e := range entries {
		attribute := func(name string) string { return h.Attribute("class", "iscsi_session", e.Name(), name) }
		if attribute("targetname") != t.iqn || attribute("ifacename") != t.iface {
			continue
		}
		connection := "connection" + strings.TrimPrefix(e.Name(), "session") + ":0"
		port := h.Attribute("class", "iscsi_connection", connection, "persistent_port")
		address := h.Attribute("class", "iscsi_connection", connection, "persistent_address")
		if port != p.port || !sameHost(address, p.host) {
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Join(class, e.Name(), "device"))
		if err != nil {
			return session{}, false, err
		}
		s := session{dir: dir, host: filepath.Base(filepath.Dir(dir)), id: attribute("target_id")}
		if s.id == "" {
			s.id = "0"
		}
		return s, true, nil
	}
	return session{}, false, nil
}

func sameHost(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return a == b || errX == nil && errY == nil && x == y
}

// blocks returns the names of a session's disks: those of one logical unit, or all if
// lun is "*".
func (s session) blocks(lun string) (names []string, err error) {
	devices, _ := filepath.Glob(filepath.Join(s.dir, "target*", "*:*:*:"+lun)) // the pattern is well-formed
	for _, device := range devices {
		found, err := disk.Blocks(device)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return names, nil
}

// iscsiadm runs iscsiadm for the target.
func (d *Driver) iscsiadm(ctx context.Context, t target, args ...string) error {
	return d.c.Stager.Host.Run(ctx, program.Command{
		Name: "iscsiadm", Args: args,
		Packages: "open-iscsi (Debian, Ubuntu, SUSE) or iscsi-initiator-utils (Fedora)", Key: "iscsi " + t.iqn,
	})
}

// node returns iscsiadm's arguments for the node record of the target at a portal.
func node(t target, p portal, args ...string) []string {
	return append([]string{"-m", "node", "-T", t.iqn, "-p", p.String(), "-I", t.iface}, args...)
}

// Exit codes of iscsiadm (iscsi_err.h): nothing to remove (ISCSI_ERR_SESS_NOT_FOUND,
// ISCSI_ERR_NO_OBJS_FOUND), and the session exists already (ISCSI_ERR_SESS_EXISTS).
const (
	exitNoSession = 2
	exitNone      = 21
	exitExists    = 15
)

// login begins the session with the target at a portal.
func (d *Driver) login(ctx context.Context, t target, p portal, secret map[string]string) error {
	// The mark comes first, so that Unstage also removes the records of a portal that
	// does not answer.
	if err := d.mark(t, p); err != nil {
		return err
	}
	discovery := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", p.String(), "-I", t.iface}
	if err := d.iscsiadm(ctx, t, append(discovery, "-o", "new")...); err != nil {
		return err
	}
	if t.discoveryCHAP {
		values, err := chap(secret, "discovery.sendtargets.auth")
		if err == nil {
			err = setValues(discoveryRecords(d.c.Databases, p), values)
		}
		if err != nil {
			return fmt.Errorf("discovery at %s: %w", p, err)
		}
	}
	// Discovery stores no records (nonpersistent): most would belong to other volumes
	// or to none. The one that is needed is made next.
	if err := d.iscsiadm(ctx, t, append(discovery, "--discover", "-o", "nonpersistent")...); err != nil {
		return err
	}
	if len(nodeRecords(d.c.Databases, t, p)) == 0 {
		if err := d.iscsiadm(ctx, t, node(t, p, "-o", "new")...); err != nil {
			return err
		}
	}
	// With manual, the session adds no logical units of other volumes, and a reboot
	// restores none before a pod needs it.
	values := map[string]string{"node.session.scan": "manual", "node.startup": "manual"}
	if t.chap {
		auth, err := chap(secret, "node.session.auth")
		if err != nil {
			return err
		}
		for name, value := range auth {
			values[name] = value
		}
	}
	if err := setValues(nodeRecords(d.c.Databases, t, p), values); err != nil {
		return fmt.Errorf("node %s at %s: %w", t.iqn, p, err)
	}
	err := d.iscsiadm(ctx, t, node(t, p, "--login")...)
	if disk.Exited(err, exitExists) {
		return nil
	}
	return err
}

// logout ends the session and removes the records that login made. It may be repeated.
func (d *Driver) logout(ctx context.Context, t target, p portal) error {
	for _, args := range [][]string{
		node(t, p, "--logout"),
		node(t, p, "-o", "delete"),
		{"-m", "discoverydb", "-t", "sendtargets", "-p", p.String(), "-o", "delete"},
	} {
		err := d.iscsiadm(ctx, t, args...)
		if errors.Is(err, program.ErrMissing) && d.neverLoggedIn(t, p) {
			break
		}
		if err != nil && !disk.Exited(err, exitNoSession, exitNone) {
			return err
		}
	}
	err := os.Remove(d.markPath(t, p))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// neverLoggedIn reports whether there is nothing to log out of, and no record to remove: iscsiadm was
// missing when login began. Without that, such a volume would stay in use for ever.
func (d *Driver) neverLoggedIn(t target, p portal) bool {
	_, there, err := d.session(t, p)
	records := append(nodeRecords(d.c.Databases, t, p), discoveryRecords(d.c.Databases, p)...)
	return err == nil && !there && len(records) == 0
}

// markPath returns the path of the file that marks a session as begun by this package.
func (d *Driver) markPath(t target, p portal) string {
	return filepath.Join(d.c.Stager.Layout.Plugins(), string(Kind), "sessions",
		shortHash(t.iqn+" "+p.String()+" "+t.iface))
}

func (d *Driver) mark(t target, p portal) error {
	path := d.markPath(t, p)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return disk.WriteFile(path, []byte(t.iqn+" "+p.String()+" "+t.iface+"\n"))
}

func (d *Driver) isMarked(t target, p portal) (bool, error) {
	_, err := os.Lstat(d.markPath(t, p))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// others returns the targets of all other volumes that are staged or may be.
func (d *Driver) others(v state.Volume) (targets []target, err error) {
	for _, o := range d.c.Volumes() {
		if o.ID == v.ID || o.Spec.Driver != Kind || o.Stage.Phase == state.Absent {
			continue
		}
		t, err := parse(*o.Spec)
		if err != nil {
			return nil, fmt.Errorf("volume %s may share the session: %w", o.Spec.Name, err)
		}
		targets = append(targets, t)
	}
	return targets, nil
}
