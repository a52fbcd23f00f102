// Package netfs is what the kinds of network file systems share that a mount
// helper of the node mounts for each pod, and the kind cephfs.
//
// Invariants: nothing that a pod or a volume says reaches a shell, or more than
// one argument, and no secret any argument. A server that does not answer holds up
// its own volumes only. What a pod wrote and the server has not got yet is never
// thrown away: no unmount is forced.
package netfs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode"

	"github.com/csi-volmgr/csi-volmgr/pkg/diskfs"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// coveredMode is the mode of the directory that is mounted on.
	coveredMode = 0o700
	// unmountTime is how long an unmount may wait for the server before it is
	// looked at what became of it.
	unmountTime = 30 * time.Second
)

// ErrSource means that a volume's source says what no mount can be asked for.
var ErrSource = errors.New("not a source of such a volume")

// Config of a Driver. All fields but UnmountTime are required.
type Config struct {
	Kind   state.DriverName
	Layout state.Layout
	Kernel *mount.Kernel
	// Run runs the helper; (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
	// Command is the helper's call that mounts the volume at target. Its first
	// argument is what is mounted.
	Command func(spec state.Spec, m state.Mount, target string) (program.Command, error)
	// UnmountTime is for tests; 0 means 30 s.
	UnmountTime time.Duration
}

// Driver makes volumes of a kind. It may be used by many goroutines.
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

// Publish mounts the server's directory at the pod's; where something is
// mounted already nothing changes.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	command, err := d.c.Command(*v.Spec, m, dir.Path())
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

// words are the options; each of flags may have several.
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

// Options are first, the volume's mount options and ro where the pod's mount is
// read-only, as a helper takes them.
func Options(spec state.Spec, m state.Mount, first ...string) (string, error) {
	for i, o := range spec.MountFlags {
		if o == "" || strings.ContainsFunc(o, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }) {
			return "", fmt.Errorf("mountOptions[%d]: %.64q is empty or has a space or control character: %w", i, o, ErrSource)
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
