package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const multipathPackages = "multipath-tools (Debian, Ubuntu, SUSE) or device-mapper-multipath (Fedora)"

// mapTime is how long a map may take to appear before multipath is asked again.
const mapTime = 5 * time.Second

// CombinePaths returns the disk with the multipath map over its paths. It returns d
// unchanged if d has one path, or if this node does not use multipath for the disk.
// Otherwise it asks for a map, and waits for it until ctx ends: a file system that is
// mounted on one path keeps multipathd from making the map, and has no other path.
func (h Host) CombinePaths(ctx context.Context, d Disk) (Disk, error) {
	if len(d.Paths) < 2 {
		return d, nil
	}
	for d.Map == "" {
		// multipath fails if it is not installed, if it is not configured for this disk, or
		// if multipathd is making the map right now.
		_ = h.tool(ctx, d, "multipath", multipathPackages, h.Path(d))
		found, err := h.Found(d.Paths)
		if err == nil && found.Map == "" {
			// Exit code 0: the disk is to have a map (multipath(8), -c).
			no := h.tool(ctx, d, "multipath", multipathPackages, "-c", h.Path(d))
			if no != nil && ctx.Err() == nil {
				return found, nil
			}
			found, err = h.awaitMap(ctx, d.Paths)
		}
		if err != nil {
			return Disk{}, err
		}
		d = found
	}
	h.addPaths(ctx, d)
	return d, nil
}

// awaitMap returns the disk once it has a map, or without one after mapTime.
func (h Host) awaitMap(ctx context.Context, paths []string) (d Disk, err error) {
	short, cancel := context.WithTimeoutCause(ctx, mapTime, errTime)
	defer cancel()
	err = poll(short, func() (bool, error) {
		d, err = h.Found(paths)
		return d.Map != "", err
	})
	if ctx.Err() != nil {
		return d, fmt.Errorf("multipath is to combine the paths %q, and has not: see multipathd's log, or blacklist the "+
			"disk: %w", paths, context.Cause(ctx))
	}
	if errors.Is(err, errTime) {
		err = nil
	}
	return d, err
}

// addPaths asks multipathd to add the paths that its map lacks. It does so by itself when a
// path appears, but not if the map was just being made. For a path that it has, or adds
// right now, the request changes nothing. The map works without the path, so a failure is
// no error.
func (h Host) addPaths(ctx context.Context, d Disk) {
	for _, path := range d.Paths {
		if _, err := os.Lstat(h.sys("block", path, "holders", d.Name)); errors.Is(err, os.ErrNotExist) {
			_ = h.tool(ctx, d, "multipathd", multipathPackages, "add", "path", path)
		}
	}
}
