// Package netfs holds what the kinds of network file systems share that a mount helper
// program mounts for each pod, and the kinds cephfs and glusterfs.
//
// Invariants: no text of a pod or volume reaches a shell or becomes more than one
// argument, and no secret is an argument. A server that does not answer blocks only its
// own volumes. Data that a pod wrote and the server has not received yet is never
// discarded: no unmount is forced.
package netfs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode"

	"github.com/csi-volmgr/csi-volmgr/internal/host/diskfs"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// coveredMode is the mode of the mount point.
	coveredMode = 0o700
	// unmountTime is how long an unmount may wait for the server. After that, Unpublish
	// checks whether the path is still mounted.
	unmountTime = 30 * time.Second
)

// ErrSource means that a volume's source cannot be mounted.
var ErrSource = errors.New("invalid source")

// Config configures a Driver. All fields except UnmountTime are required.
type Config struct {
	Kind   state.DriverName
	Layout state.Layout
	Kernel *mount.Kernel
	// Run runs the mount helper, as (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
	// Command returns the mount helper's command that mounts the volume at target. Its
	// first argument is the mount source.
	Command func(spec state.Spec, m state.Mount, target string) (program.Command, error)
	// UnmountTime is for tests; 0 means 30 s.
	UnmountTime time.Duration
}

// Driver implements the volumes of one kind. It is safe for concurrent use.
type Driver struct {
	poddir.PublishOnly
	c Config
}

// New returns a Driver.
func New(c Config) *Driver {
	if c.UnmountTime == 0 {
		c.UnmountTime = unmountTime
	}
	return &Driver{poddir.PublishOnly{Kind: c.Kind}, c}
}

// Publish mounts the server's directory at the pod's, unless something is mounted there
// already.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(ctx, d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	command, err := d.c.Command(*v.Spec, m, dir.Path())
	if err != nil {
		return poddir.Refused("Publish", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	// Look first: MakeNew opens a directory that is there, and a mount's server may hang.
	seen, err := d.c.Kernel.Look(ctx, dir.Path())
	if err != nil || seen.Mounted {
		return err
	}
	if _, err := dir.MakeNew(coveredMode); err != nil {
		return err
	}
	if err := d.c.Run(ctx, command); err != nil {
		return fmt.Errorf("volume %s: mount %s: %w", v.Spec.Name, command.Args[0], err)
	}
	return nil
}

// Unpublish unmounts the volume and removes the pod's directory.
//
// If the server does not answer, the kernel cannot finish the unmount, but it first
// removes the mount from the directory tree. Once that has happened, the volume is
// unpublished; the kernel sends the written data when the server is back.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Unpublish", err)
	}
	short, cancel := context.WithTimeoutCause(ctx, d.c.UnmountTime, fmt.Errorf("no answer from the server within %v",
		d.c.UnmountTime))
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

// words iterates over the mount options; each flag may contain several.
func words(flags []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, flag := range flags {
			for word := range strings.SplitSeq(flag, ",") {
				if !yield(word) {
					return
				}
			}
		}
	}
}

// keyOf returns the first key of an option, for a message: users who may only read see it, and a
// value may be a password.
func keyOf(option string) string {
	key, _, _ := strings.Cut(option, "=")
	return key
}

// Options returns the option argument of a mount helper: first, then the volume's mount
// options, and ro if the pod's mount is read-only.
func Options(spec state.Spec, m state.Mount, first ...string) (string, error) {
	for i, o := range spec.MountFlags {
		if o == "" || strings.ContainsFunc(o, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }) {
			return "", fmt.Errorf("mountOptions[%d]: %.64q is empty or has a space or control character: %w", i, keyOf(o),
				ErrSource)
		}
		if strings.Count(o, `"`)%2 != 0 { // a mount helper would take the next options, such as ro, for the rest of it
			return "", fmt.Errorf("mountOptions[%d]: %.64q has a quotation mark that is not closed: %w", i, keyOf(o), ErrSource)
		}
		first = append(first, o)
	}
	if err := diskfs.CheckWords(spec.MountFlags); err != nil {
		return "", fmt.Errorf("mountOptions: %w: %w", err, ErrSource)
	}
	if m.ReadOnly {
		first = append(first, "ro")
	}
	return strings.Join(first, ","), nil
}
