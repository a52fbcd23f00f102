package freeze

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volume is a volume of the manager.
type Volume struct {
	state.Volume
	// Unknown says why its record cannot be read; "" if it can.
	Unknown string
}

// place says where a volume is mounted.
type place struct {
	// Path is where its whole file system is mounted; "" if nothing of the volume is
	// mounted.
	Path string
	// Own are the directories at or below which its file system may be mounted. Others
	// are those of other volumes, and take precedence.
	Own, Others []string
}

// placeOf returns the place of the volume. Its file system may also be mounted in the
// directories of pods, where subpaths are bound.
func placeOf(id state.VolumeID, all []Volume, pods string) (place, error) {
	p := place{Own: []string{pods}}
	for _, v := range all {
		if v.ID != id {
			p.Others = append(p.Others, mountDirs(v.Volume)...)
			continue
		}
		p.Own = append(p.Own, mountDirs(v.Volume)...)
		switch {
		case v.Unknown != "":
			return p, fmt.Errorf("its mounts are not known: %s", v.Unknown)
		case v.Clear():
		case v.Spec.Mode == state.Block:
			return p, fmt.Errorf("%w: volumeMode %s has none", ErrUnable, state.Block)
		default:
			if p.Path = wholeMount(v.Volume); p.Path == "" {
				return p, errors.New("it is being mounted or unmounted")
			}
		}
	}
	return p, nil
}

// wholeMount returns where the volume's whole file system is mounted, or "".
func wholeMount(v state.Volume) string {
	if v.Stage.Phase == state.Present && v.Staged.Mounted {
		return v.Spec.StagePath
	}
	var targets []string
	for _, m := range v.Mounts {
		if m.Phase == state.Present && m.Seen.Mounted {
			targets = append(targets, m.Target)
		}
	}
	if len(targets) == 0 {
		return ""
	}
	return slices.Min(targets)
}

// mountDirs returns the directories at which something of the volume may be mounted.
func mountDirs(v state.Volume) []string {
	var all []string
	if v.Spec != nil && v.Spec.StagePath != "" {
		all = append(all, v.Spec.StagePath)
	}
	for _, m := range v.Mounts {
		all = append(all, m.Target)
	}
	return all
}

// judge returns the mount to freeze. It fails if the file system is mounted outside the
// volume's directories.
func judge(table []mount.Entry, p place, never []string) (mount.Entry, error) {
	found, ok := mount.MountOf(table, p.Path)
	if !ok || found.Path != p.Path {
		return mount.Entry{}, fmt.Errorf("nothing is mounted at %s", p.Path)
	}
	switch {
	case found.Dev>>32 == 0 && found.FSType != "btrfs", strings.HasPrefix(found.FSType, "fuse"):
		return mount.Entry{}, fmt.Errorf("%w: %s", ErrUnable, found.FSType)
	case found.Root != "/":
		return mount.Entry{}, fmt.Errorf("%w: only its directory %s is mounted at %s", ErrNever, found.Root, p.Path)
	}
	for _, dir := range never {
		if e, ok := mount.MountOf(table, dir); ok && e.Dev == found.Dev {
			return mount.Entry{}, fmt.Errorf("%w: %s is on it", ErrNever, dir)
		}
	}
	for _, e := range table {
		if e.Dev == found.Dev && (!beneath(e.Path, p.Own) || beneath(e.Path, p.Others)) {
			return mount.Entry{}, fmt.Errorf("%w: it is also mounted at %s", ErrNever, e.Path)
		}
	}
	return found, nil
}

// beneath reports whether path is one of dirs or below one.
func beneath(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return pathname.Within(path, dir) })
}
