// Package hostpath is the built-in kind hostPath: a file or directory of the node
// itself, if the operator allows its path.
//
// As with the kubelet, nothing is mounted for the pod and no owner changes. An empty
// directory represents the volume in the pod's directory. A container gets what the
// path leads to by a mount of its own ([OpenWhole]), or by the path itself if no pod
// can replace it.
//
// Invariants: paths are inspected and made on descriptors, and no symbolic link leads
// out of the directories that the operator allows (rule 8). Nothing at the path is ever
// removed.
package hostpath

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.HostPath

// standInMode is the mode of the directory that represents the volume.
const standInMode = 0o700

// ErrDenied means that the operator does not allow the path.
var ErrDenied = errors.New("not allowed")

// ErrType means that the file at a path is not of the wanted type. Programs look for its
// words, the kubelet's.
var ErrType = errors.New(typeCheck)

const typeCheck = "hostPath type check failed"

// Config configures a Driver. All fields except Allow are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Allow lists clean absolute paths of directories: files and directories at or
	// below one may be volumes. If it is empty, none may.
	Allow []string
}

// Driver implements hostPath volumes. It is safe for concurrent use.
type Driver struct {
	poddir.PublishOnly
	poddir.Remover
	c Config
}

// New returns a Driver.
func New(c Config) *Driver {
	return &Driver{poddir.PublishOnly{Kind: Kind}, poddir.Remover{Layout: c.Layout, Kernel: c.Kernel}, c}
}

// Publish checks what is at the path. If nothing is there, it makes it, for the types
// that ask for that.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(ctx, d.c.Layout, v, pod)
	if err != nil {
		return err
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
	_, err = dir.MakeNew(standInMode)
	return err
}

// ensure returns nil once the path has what the source wants. given is the path in the
// record.
func (d *Driver) ensure(src corev1.HostPathVolumeSource, given string) error {
	path, err := clean(src.Path)
	if err != nil {
		return err
	}
	if given != path {
		return fmt.Errorf("the record has path %q: %w", given, ErrDenied)
	}
	return ensureType(d.c.Allow, path, typeOf(src))
}

// typeOf returns the source's type.
func typeOf(src corev1.HostPathVolumeSource) corev1.HostPathType {
	if src.Type == nil {
		return corev1.HostPathUnset
	}
	return *src.Type
}

// clean returns the cleaned path, or an error if it cannot be a volume's path.
func clean(path string) (string, error) {
	switch {
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%w: it is not an absolute path", ErrDenied)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%w: it contains NUL", ErrDenied)
	case slices.Contains(strings.Split(path, "/"), ".."):
		return "", fmt.Errorf(`%w: it contains ".."`, ErrDenied)
	}
	return filepath.Clean(path), nil
}

// Open opens a path at or below one of the directories that the operator allows, as an
// O_PATH descriptor. The file's name is the path without symbolic links. It follows
// links below such a directory only as long as they lead to allowed places.
func Open(allow []string, path string) (*os.File, error) {
	f, err := find(allow, path, corev1.HostPathUnset)
	if err != nil {
		return nil, fmt.Errorf("hostPath %q: %w", path, err)
	}
	return f, nil
}

// OpenWhole opens what a container gets as a whole volume, as Open does. If nothing is
// there, it makes what the source's type says, or a directory if the source has no
// type, as container runtimes do.
func OpenWhole(allow []string, src corev1.HostPathVolumeSource) (*os.File, error) {
	path, err := clean(src.Path)
	if err != nil {
		return nil, fmt.Errorf("hostPath %q: %w", src.Path, err)
	}
	kind := typeOf(src)
	f, err := find(allow, path, cmp.Or(kind, corev1.HostPathDirectoryOrCreate))
	if err != nil {
		return nil, fmt.Errorf("hostPath %q: %w", path, absent(kind, err))
	}
	if err := checkType(f, kind); err != nil {
		return nil, errors.Join(fmt.Errorf("hostPath %q: %w", path, err), f.Close())
	}
	return f, nil
}

// Replaceable reports whether a container may be able to replace what is at a clean
// path. It may if the path is below an allowed directory; the allowed directory itself
// belongs to the operator.
func Replaceable(allow []string, path string) bool {
	return !slices.Contains(outermost(allow), path)
}

// Allowed returns the longest of the directories that contain the clean path, or "" if
// there is none.
func Allowed(dirs []string, path string) string {
	best := ""
	for _, dir := range dirs {
		if pathname.Within(path, dir) && len(dir) > len(best) {
			best = dir
		}
	}
	return best
}
