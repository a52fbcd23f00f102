package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// program is a program that a kind of volume needs.
type program struct{ name, use, packages string }

const (
	nfsPackages   = "nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, SUSE, Arch)"
	iscsiPackages = "open-iscsi (Debian, Ubuntu, SUSE) or iscsi-initiator-utils (Fedora)"
)

// programs checks for the programs of the built-in kinds.
func (e *examination) programs() {
	for _, p := range []program{
		{"mount.nfs", "nfs volumes", nfsPackages},
		{"iscsiadm", "iscsi volumes", iscsiPackages},
		{
			"multipath", "iscsi and fc volumes over several paths",
			"multipath-tools (Debian, Ubuntu, SUSE) or device-mapper-multipath (Fedora)",
		},
		{"mkfs.ext4", "iscsi and fc volumes, and the local driver's, as ext4", "e2fsprogs"},
		{"resize2fs", "growth of ext4", "e2fsprogs"},
		{"mkfs.xfs", "iscsi and fc volumes, and the local driver's, as xfs", "xfsprogs"},
		{"xfs_growfs", "growth of xfs", "xfsprogs"},
	} {
		e.program("program."+p.name, p)
	}
}

func (e *examination) program(check string, p program) {
	for _, dir := range e.Path {
		path := filepath.Join(dir, p.name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			e.ok(check, path)
			return
		}
	}
	e.warn(check, "not found in "+strings.Join(e.Path, ":"), "for "+p.use+" install "+p.packages)
}

// need reports whether something that a driver needs is there.
func (e *examination) need(check string, has bool, what, advice string) {
	if has {
		e.ok(check, what)
	} else {
		e.fail(check, what+" is missing", advice)
	}
}

// driver checks the driver's known needs on the host.
func (e *examination) driver(name state.DriverName) {
	at := "driver." + string(name) + "."
	e.reach(at+"propagation", filepath.Join(e.Root, "plugins", string(name), "csi.sock"))
	switch name {
	case localdriver.DefaultName:
		e.need(at+"loop", e.there("dev/loop-control"), "/dev/loop-control", "modprobe loop")
	case "driver.longhorn.io":
		e.program(at+"iscsiadm", program{"iscsiadm", "attaching its volumes", iscsiPackages})
		e.need(at+"iscsid", e.running("iscsid"), "process iscsid", "systemctl enable --now iscsid")
		e.need(at+"iscsi_tcp", e.hasModule("iscsi_tcp"), "module iscsi_tcp", "use a kernel that has it")
		e.program(at+"mount.nfs", program{"mount.nfs", "its volumes of several nodes", nfsPackages})
		e.multipath(at + "multipathd")
	case "nfs.csi.k8s.io", "efs.csi.aws.com":
		e.need(at+"nfs", e.hasFileSystem("nfs4") || e.hasFileSystem("nfsv4"), "file system nfs4",
			"modprobe nfsv4, or use a kernel that has it")
	case "smb.csi.k8s.io", "file.csi.azure.com":
		e.need(at+"cifs", e.hasFileSystem("cifs"), "file system cifs", "modprobe cifs, or use a kernel that has it")
	case "rbd.csi.ceph.com":
		e.need(at+"rbd", e.hasModule("rbd") || e.hasModule("nbd"), "module rbd or nbd",
			"modprobe rbd, or use a kernel that has it")
	case "cephfs.csi.ceph.com":
		e.need(at+"ceph", e.hasFileSystem("ceph") || e.there("dev/fuse"), "file system ceph, or /dev/fuse",
			"modprobe ceph or fuse, or use a kernel that has one")
	case "topolvm.io":
		e.need(at+"dm", e.hasModule("dm_mod") || e.there("dev/mapper/control"), "the device mapper",
			"modprobe dm_mod, or use a kernel that has it")
	default:
		e.ok(at+"needs", "csi-volmgr does not know what it needs on the host: see its own documentation")
	}
}

// reach checks whether the driver's mounts appear on this host. It reports nothing if no process listens
// on the driver's usual socket.
func (e *examination) reach(check, socket string) {
	if e.socket(socket) != "" {
		return
	}
	switch why, err := e.Unreached(socket); {
	case err != nil:
		e.warn(check, "not known: "+err.Error(), "run it as root, in the pid namespace of the host")
	case why != "":
		e.fail(check, why, "its mounts do not reach this host: mount "+e.Root+
			" into its container with mountPropagation: Bidirectional (docker and podman: bind-propagation=rshared), and "+
			"restart it")
	default:
		e.ok(check, "its mounts reach this host")
	}
}

// Reaching returns [Unreached] for a root directory as a function that returns "" if it cannot tell.
func Reaching(root string, log *slog.Logger) func(ctx context.Context, socket string) string {
	return func(ctx context.Context, socket string) string {
		why, err := Unreached(ctx, socket, root)
		if err != nil {
			log.Debug("driver's mount namespace cannot be inspected", "endpoint", socket, "err", err)
		}
		return why
	}
}

// Unreached returns why mounts below root of the process behind a socket do not appear here; "" if they
// do.
func Unreached(ctx context.Context, socket, root string) (string, error) {
	conn, err := unixsocket.Dial(ctx, socket)
	if err != nil {
		return "", err
	}
	peer, err := unixsocket.Peer(conn)
	if err = errors.Join(err, conn.Close()); err != nil {
		return "", err
	}
	if peer.Pid <= 0 {
		return "", fmt.Errorf("the process that listens on %s is in a pid namespace that cannot be seen from here", socket)
	}
	return mount.Unreached(int(peer.Pid), root)
}

// multipath warns if multipathd may take devices that are not its own.
func (e *examination) multipath(check string) {
	conf, err := e.file("etc/multipath.conf")
	switch {
	case !e.running("multipathd"):
		e.ok(check, "it does not run")
	case err == nil && strings.Contains(string(conf), "blacklist"):
		e.ok(check, "it runs, with a blacklist in /etc/multipath.conf")
	default:
		e.fail(check, "it runs, and no blacklist in /etc/multipath.conf keeps it from the driver's disks",
			`add to it: blacklist { devnode "^sd[a-z0-9]+" }, unless disks of the node itself are among these`)
	}
}
