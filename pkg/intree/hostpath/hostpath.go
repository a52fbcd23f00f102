// Package hostpath is the built-in kind hostPath: a file or directory of the
// node itself, where the operator allows it.
//
// As with the kubelet nothing is mounted for the pod and no owner is changed. What
// stands for the volume in the pod's directory is an empty directory. A container is
// given what the path leads to by a mount of its own ([OpenWhole]), or by the path where
// no pod can replace it.
//
// Invariants: a path is looked at and made on descriptors, and no symbolic link
// leads out of the directories that the operator allows (rule 8). Nothing at the
// path is ever removed.
package hostpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/pathname"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.HostPath

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
type Driver struct {
	poddir.PublishOnly
	poddir.Remover
	c Config
}

// New returns a Driver.
func New(c Config) *Driver {
	return &Driver{poddir.PublishOnly{Kind: Kind}, poddir.Remover{Layout: c.Layout, Kernel: c.Kernel}, c}
}

// Publish looks at what is at the path and, for the types that say so, makes it
// where there is nothing.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var src corev1.HostPathVolumeSource
	if err := json.Unmarshal(v.Spec.Config, &src); err != nil {
		return poddir.Refused("Publish", fmt.Errorf("volume %s: hostPath: %w", v.Spec.Name, err))
	}
	if err := d.ensure(src, m.HostPath); err != nil {
		err = fmt.Errorf("volume %s: hostPath %q: %w", v.Spec.Name, src.Path, err)
		if errors.Is(err, ErrDenied) {
			return poddir.Refused("Publish", err)
		}
		return err
	}
	f, err := dir.Make(standInMode)
	if err != nil {
		return err
	}
	return f.Close()
}

// ensure returns nil once what the source wants is at its path. given is the path
// that the record hands out.
func (d *Driver) ensure(src corev1.HostPathVolumeSource, given string) error {
	path, err := clean(src.Path)
	if err != nil {
		return err
	}
	if given != path {
		return fmt.Errorf("the record hands out %q: %w", given, ErrDenied)
	}
	kind := corev1.HostPathUnset
	if src.Type != nil {
		kind = *src.Type
	}
	return lookAt(d.c.Allow, path, kind)
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

// Open opens a path that lies at or below one of the directories that the
// operator allows, for identity (O_PATH). Its name is the path without links in
// it. A link below such a directory is followed as far as that leads nowhere else.
func Open(allow []string, path string) (*os.File, error) {
	f, err := find(allow, path, corev1.HostPathUnset)
	if err != nil {
		return nil, fmt.Errorf("hostPath %q: %w", path, err)
	}
	return f, nil
}

// OpenWhole opens, as Open does, what a container is given as a whole. What the source
// says is made where there is nothing; of a source without a type that is a directory,
// as container runtimes make it.
func OpenWhole(allow []string, src corev1.HostPathVolumeSource) (*os.File, error) {
	path, err := clean(src.Path)
	if err != nil {
		return nil, fmt.Errorf("hostPath %q: %w", src.Path, err)
	}
	kind := corev1.HostPathUnset
	if src.Type != nil {
		kind = *src.Type
	}
	making := kind
	if making == corev1.HostPathUnset {
		making = corev1.HostPathDirectoryOrCreate
	}
	f, err := find(allow, path, making)
	if err != nil {
		return nil, fmt.Errorf("hostPath %q: %w", path, err)
	}
	if err := isOf(f, kind); err != nil {
		return nil, errors.Join(fmt.Errorf("hostPath %q: %w", path, err), f.Close())
	}
	return f, nil
}

// Replaceable reports whether a container may replace what is at a clean path: below
// an allowed directory. An allowed directory itself is the operator's.
func Replaceable(allow []string, path string) bool {
	return !slices.Contains(outermost(allow), path)
}

// Allowed returns the longest of the directories that a clean path is at or
// below; "" where there is none.
func Allowed(dirs []string, path string) string {
	best := ""
	for _, dir := range dirs {
		if pathname.Within(path, dir) && len(dir) > len(best) {
			best = dir
		}
	}
	return best
}
