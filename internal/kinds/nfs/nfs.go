// Package nfs is the built-in kind nfs: a directory of an NFS server, mounted for each
// pod by mount.nfs.
//
// Invariants: no text of a pod or volume reaches a shell or becomes more than one
// argument. A server that does not answer blocks only its own volumes. Data that a pod
// wrote and the server has not received yet is never discarded: no unmount is forced.
package nfs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/netfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.NFS

// ErrSource means that a volume's source does not describe an NFS directory.
var ErrSource = netfs.ErrSource

// Config configures a Driver. Layout, Kernel and Run are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Run runs mount.nfs, as (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
	// UnmountTime is for tests; 0 means 30 s.
	UnmountTime time.Duration
}

// Driver implements nfs volumes. It is safe for concurrent use.
type Driver struct{ *netfs.Driver }

// New returns a Driver.
func New(c Config) *Driver {
	return &Driver{netfs.New(netfs.Config{
		Kind: Kind, Layout: c.Layout, Kernel: c.Kernel, Run: c.Run, Command: mountCommand, UnmountTime: c.UnmountTime,
	})}
}

// mountCommand returns the mount.nfs command for a volume.
func mountCommand(spec state.Spec, m state.Mount, target string) (program.Command, error) {
	var src corev1.NFSVolumeSource
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return program.Command{}, fmt.Errorf("nfs: %w: %w", ErrSource, err)
	}
	source, err := sourceOf(src)
	if err != nil {
		return program.Command{}, err
	}
	// retry=0, since the manager retries with its own pauses.
	options, err := netfs.Options(spec, m, "retry=0")
	if err != nil {
		return program.Command{}, err
	}
	return program.Command{
		Name: "mount.nfs", Args: []string{source, target, "-o", options},
		Packages: "nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, SUSE, Arch)", Key: target,
	}, nil
}

// sourceOf returns the directory in mount.nfs's notation: "server:/path", with an IPv6
// address in brackets.
func sourceOf(src corev1.NFSVolumeSource) (string, error) {
	if !path.IsAbs(src.Path) || slices.Contains(strings.Split(src.Path, "/"), "..") ||
		strings.ContainsFunc(src.Path, unicode.IsControl) {
		return "", fmt.Errorf("nfs.path: found %.64q, want an absolute path without '..' and control characters: %w",
			src.Path, ErrSource)
	}
	server := src.Server
	if a, err := netip.ParseAddr(server); err == nil && a.Is6() {
		return "[" + server + "]:" + src.Path, nil
	}
	if !netfs.IsName(server) {
		return "", fmt.Errorf("nfs.server: found %.64q, want a host name or an IP address: %w", server, ErrSource)
	}
	return server + ":" + src.Path, nil
}
