// Package nfs is the built-in kind nfs: a directory of an NFS server, mounted
// for each pod by mount.nfs.
//
// Invariants: nothing that a pod or a volume says reaches a shell, or more than
// one argument. A server that does not answer holds up its own volumes only.
// What a pod wrote and the server has not got yet is never thrown away: no
// unmount is forced.
package nfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind state.DriverName = "kubernetes.io/nfs"

const (
	// coveredMode is the mode of the directory that is mounted on.
	coveredMode = 0o700
	// unmountTime is how long an unmount may wait for the server before it is
	// looked at what became of it.
	unmountTime = 30 * time.Second
)

// ErrSource means that a volume's source says what no mount can be asked for.
var ErrSource = errors.New("not a source of an nfs volume")

// Config of a Driver. Layout, Kernel and Run are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Run runs mount.nfs; (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
	// UnmountTime is for tests; 0 means 30 s.
	UnmountTime time.Duration
}

// Driver makes nfs volumes. It may be used by many goroutines.
type Driver struct {
	poddir.PublishOnly
	c Config
}

// New returns a Driver.
func New(c Config) *Driver {
	if c.UnmountTime == 0 {
		c.UnmountTime = unmountTime
	}
	return &Driver{poddir.PublishOnly{Kind: Kind}, c}
}

// Publish mounts the server's directory at the pod's; where something is
// mounted already nothing changes.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	command, err := mountCommand(v.Spec, m, dir.Path())
	if err != nil {
		return poddir.Refused("Publish", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f, err := dir.Make(coveredMode)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	seen, err := d.c.Kernel.Look(ctx, dir.Path())
	if err != nil || seen.Mounted {
		return err
	}
	if err := d.c.Run(ctx, command); err != nil {
		return fmt.Errorf("volume %s: mount %s: %w", v.Spec.Name, command.Args[0], err)
	}
	return nil
}

// mountCommand is the call of mount.nfs.
func mountCommand(spec state.Spec, m state.Mount, target string) (program.Command, error) {
	var src corev1.NFSVolumeSource
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return program.Command{}, fmt.Errorf("nfs: %w: %w", ErrSource, err)
	}
	source, err := sourceOf(src)
	if err != nil {
		return program.Command{}, err
	}
	// The manager tries again, with pauses of its own: mount.nfs is not to.
	options := []string{"retry=0"}
	for i, o := range spec.MountFlags {
		if o == "" || strings.ContainsFunc(o, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }) {
			return program.Command{}, fmt.Errorf("mountOptions[%d]: %.64q is empty or has a space or control character: %w", i, o, ErrSource)
		}
		options = append(options, o)
	}
	if m.ReadOnly {
		options = append(options, "ro")
	}
	return program.Command{
		Name: "mount.nfs", Args: []string{source, target, "-o", strings.Join(options, ",")},
		Packages: "nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, SUSE, Arch)", Key: target,
	}, nil
}

// sourceOf is what mount.nfs calls the directory: "server:/path", with an IPv6
// address in brackets.
func sourceOf(src corev1.NFSVolumeSource) (string, error) {
	bad := func(c rune) bool { return unicode.IsControl(c) }
	if !path.IsAbs(src.Path) || slices.Contains(strings.Split(src.Path, "/"), "..") || strings.ContainsFunc(src.Path, bad) {
		return "", fmt.Errorf("nfs.path: %.64q is no absolute path without '..' and control characters: %w", src.Path, ErrSource)
	}
	server := src.Server
	if a, err := netip.ParseAddr(server); err == nil && a.Is6() {
		return "[" + server + "]:" + src.Path, nil
	}
	if server == "" || server[0] == '-' || strings.ContainsFunc(server, func(c rune) bool {
		return c != '.' && c != '-' && c != '_' && (c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c))
	}) {
		return "", fmt.Errorf("nfs.server: %.64q is neither a host name nor an IP address: %w", server, ErrSource)
	}
	return server + ":" + src.Path, nil
}

// Unpublish ends the mount and removes the pod's directory.
//
// A server that does not answer keeps the kernel from ending the mount, not
// from taking it out of the directory tree, which comes first: where that is
// done the node is done too, and the kernel hands over what was written when
// the server is back.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Unpublish", err)
	}
	short, cancel := context.WithTimeoutCause(ctx, d.c.UnmountTime, fmt.Errorf("no answer from the server within %v", d.c.UnmountTime))
	err = d.c.Kernel.Unmount(short, dir.Path())
	cancel()
	if err != nil {
		seen, lookErr := d.c.Kernel.Look(ctx, dir.Path())
		if lookErr != nil || seen.Mounted {
			return errors.Join(err, lookErr)
		}
	}
	return dir.Clear(ctx, d.c.Kernel)
}
