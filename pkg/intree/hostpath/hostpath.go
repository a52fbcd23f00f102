// Package hostpath is the built-in kind hostPath: a file or directory of the
// node itself, where the operator allows it.
//
// As with the kubelet nothing is mounted and no owner is changed: whoever runs
// the containers is given the path. What stands for the volume in the pod's
// directory is an empty directory.
//
// Invariants: a path is looked at and made beneath a directory that the
// operator allows, on descriptors, and no symbolic link below that one is
// followed (rule 8). Nothing at the path is ever removed.
package hostpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind state.DriverName = "kubernetes.io/host-path"

// standInMode is the mode of the directory that stands for the volume.
const standInMode = 0o700

// ErrDenied means that the operator does not allow a path.
var ErrDenied = errors.New("not allowed")

// ErrType means that what is at a path is not of the type that is wanted.
var ErrType = errors.New("of another type")

// Config of a Driver. All fields but Allow are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Allow lists clean absolute paths of directories: what lies at or below one
	// may be a volume. None means nothing may.
	Allow []string
}

// Driver makes hostPath volumes. It may be used by many goroutines.
type Driver struct{ c Config }

// New returns a Driver.
func New(c Config) *Driver { return &Driver{c} }

// Publish looks at what is at the path and, for the types that say so, makes it
// where there is nothing.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, ok := v.Mounts[pod]
	if !ok {
		return refused("Publish", fmt.Errorf("the record has no mount for pod %s", pod))
	}
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return refused("Publish", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var src corev1.HostPathVolumeSource
	if err := json.Unmarshal(v.Spec.Config, &src); err != nil {
		return refused("Publish", fmt.Errorf("volume %s: hostPath: %w", v.Spec.Name, err))
	}
	if err := d.have(src, m.HostPath); err != nil {
		err = fmt.Errorf("volume %s: hostPath %q: %w", v.Spec.Name, src.Path, err)
		if errors.Is(err, ErrDenied) {
			return refused("Publish", err)
		}
		return err
	}
	f, err := dir.Make(standInMode)
	if err != nil {
		return err
	}
	return f.Close()
}

// have returns nil once what the source wants is at its path. given is the path
// that the record hands out.
func (d *Driver) have(src corev1.HostPathVolumeSource, given string) error {
	path, err := clean(src.Path)
	if err != nil {
		return err
	}
	if given != path {
		return fmt.Errorf("the record hands out %q: %w", given, ErrDenied)
	}
	root := d.allowed(path)
	if root == "" {
		return fmt.Errorf("%w: it is not at or below any of the paths that the node's operator allows [%s] (--host-path-allow)",
			ErrDenied, strings.Join(d.c.Allow, ", "))
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	kind := corev1.HostPathUnset
	if src.Type != nil {
		kind = *src.Type
	}
	return lookAt(root, rel, kind)
}

// clean returns the path, or why it cannot be one of a volume.
func clean(path string) (string, error) {
	switch {
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%w: it is not an absolute path", ErrDenied)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%w: it has a NUL", ErrDenied)
	case slices.Contains(strings.Split(path, "/"), ".."):
		return "", fmt.Errorf(`%w: it has ".."`, ErrDenied)
	}
	return filepath.Clean(path), nil
}

// allowed returns the longest allowed directory that a clean path is at or
// below; "" where there is none.
func (d *Driver) allowed(path string) string {
	best := ""
	for _, root := range d.c.Allow {
		in := path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
		if in && len(root) > len(best) {
			best = root
		}
	}
	return best
}

// Unpublish removes what stands for the volume, and nothing else.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return refused("Unpublish", err)
	}
	return dir.Remove(ctx, d.c.Kernel)
}

// Stage fails: the kind has no such step.
func (d *Driver) Stage(context.Context, state.Volume) error { return noStep("Stage") }

// Unstage fails: the kind has no such step.
func (d *Driver) Unstage(context.Context, state.Volume) error { return noStep("Unstage") }

// Expand fails: the kind has no such step.
func (d *Driver) Expand(context.Context, state.Volume, state.PodUID, int64) (int64, error) {
	return 0, noStep("Expand")
}

func noStep(call string) error {
	return &state.CallError{Outcome: state.Final, Call: call, Err: errors.New(string(Kind) + " has no such step")}
}

func refused(call string, err error) error {
	return &state.CallError{Outcome: state.Refused, Call: call, Err: err}
}
