package freeze

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volume is a volume of the manager.
type Volume struct {
	state.Volume
	// Unknown says why its record cannot be read; "" for one that can.
	Unknown string
}

// place is where a volume is mounted.
type place struct {
	// Path is where its whole file system is mounted; "" where nothing of the volume is mounted.
	Path string
	// Own are the directories at or below which its file system may be mounted; Others, which have
	// precedence, are those of other volumes.
	Own, Others []string
}

// placeOf is where the volume's file system is mounted. The directories of pods may have it too:
// subpaths are bound there.
func placeOf(id state.VolumeID, all []Volume, pods string) (place, error) {
	p := place{Own: []string{pods}}
	for _, v := range all {
		if v.ID != id {
			p.Others = append(p.Others, mountsOf(v.Volume)...)
			continue
		}
		p.Own = append(p.Own, mountsOf(v.Volume)...)
		switch {
		case v.Unknown != "":
			return p, fmt.Errorf("what is mounted of it is not known: %s", v.Unknown)
		case v.Clear():
		case v.Spec.Mode == state.Block:
			return p, fmt.Errorf("%w: volumeMode %s has none", ErrUnable, state.Block)
		default:
			if p.Path = wholeOf(v.Volume); p.Path == "" {
				return p, errors.New("it is being mounted or unmounted")
			}
		}
	}
	return p, nil
}

// wholeOf is where the volume's whole file system is mounted, "" for nowhere.
func wholeOf(v state.Volume) string {
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

// mountsOf are the directories at which anything of the volume may be mounted.
func mountsOf(v state.Volume) []string {
	var all []string
	if v.Spec != nil && v.Spec.StagePath != "" {
		all = append(all, v.Spec.StagePath)
	}
	for _, m := range v.Mounts {
		all = append(all, m.Target)
	}
	return all
}

// judge finds the mount that is to be frozen. Everything that has the file system mounted must be the volume's.
func judge(table []mount.Entry, p place, never []string) (mount.Entry, error) {
	it, ok := mountOf(table, p.Path)
	if !ok || it.Path != p.Path {
		return mount.Entry{}, fmt.Errorf("nothing is mounted at %s", p.Path)
	}
	switch {
	case it.Root != "/":
		return mount.Entry{}, fmt.Errorf("%w: at %s is a directory of it, %s", ErrNever, p.Path, it.Root)
	case it.Dev>>32 == 0 && it.FSType != "btrfs", strings.HasPrefix(it.FSType, "fuse"):
		return mount.Entry{}, fmt.Errorf("%w: %s", ErrUnable, it.FSType)
	}
	for _, dir := range never {
		if e, ok := mountOf(table, dir); ok && e.Dev == it.Dev {
			return mount.Entry{}, fmt.Errorf("%w: %s is on it", ErrNever, dir)
		}
	}
	for _, e := range table {
		if e.Dev == it.Dev && (!beneath(e.Path, p.Own) || beneath(e.Path, p.Others)) {
			return mount.Entry{}, fmt.Errorf("%w: it is mounted at %s too", ErrNever, e.Path)
		}
	}
	return it, nil
}

// mountOf is the mount that shows the path: the deepest above it, of several at one path the last.
func mountOf(table []mount.Entry, path string) (mount.Entry, bool) {
	var it mount.Entry
	for _, e := range table {
		if beneath(path, []string{e.Path}) && len(e.Path) >= len(it.Path) {
			it = e
		}
	}
	return it, it.Path != ""
}

// beneath reports whether path is one of dirs or below one.
func beneath(path string, dirs []string) bool {
	for _, dir := range dirs {
		if path == dir || dir == "/" || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
