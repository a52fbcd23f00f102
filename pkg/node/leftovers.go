package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/leftover"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// leftoverPause is the least time between two looks for directories of pods
	// that are gone.
	leftoverPause = 10 * time.Second
	// leftoverStart is the same while it is not known yet what is wanted.
	leftoverStart = 100 * time.Millisecond
	// leftoverIdle is how long nothing may have been made in one before it goes.
	leftoverIdle = time.Minute
)

// runLeftovers removes the directories of pods that are gone, where they are
// empty, after every change of what there is; and again where one was too young.
// What is in use of other volumes is an operator's to remove (csi-volmgr gc).
func (n *Node) runLeftovers(ctx context.Context) error {
	var told map[string]bool
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		changed, ready := n.manager.Changed(), n.changed.next()
		var again bool
		if told, again = n.removePodDirs(ctx, told, time.Now().Add(-leftoverIdle)); again {
			pause.Reset(leftoverIdle)
		} else {
			select {
			case <-changed:
			case <-ready:
			case <-ctx.Done():
				return nil
			}
			pause.Reset(leftoverPause)
			if len(n.Views().NotReady()) > 0 {
				pause.Reset(leftoverStart)
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// removePodDirs removes what may go and tells of each that stays, unless told has
// it. It returns what was told of, and whether there are directories in which
// something was made since idle.
func (n *Node) removePodDirs(ctx context.Context, told map[string]bool, idle time.Time) (stay map[string]bool,
	young bool,
) {
	stay = map[string]bool{}
	candidates, err := n.strangers()
	if err != nil {
		n.log.Warn("directories of pods that are gone are not known", "err", err)
	}
	removed, left := 0, 0
	if candidates > 0 {
		s := leftover.Scanner{Root: n.cfg.Root, Mounts: n.kernel.List}
		items, err := s.Pods(ctx, n.known, idle)
		if err != nil && ctx.Err() == nil {
			n.log.Warn("directories of pods that are gone cannot be looked at", "err", err)
		}
		for _, i := range items {
			if i.Removed {
				removed++
				n.log.Info("directory of a pod that is gone was empty and is removed", "path", i.Path)
				continue
			}
			left++
			stay[i.Path] = true
			if !told[i.Path] {
				n.log.Warn("directory of a pod that is gone stays", "path", i.Path, "reason", i.Why, "err", i.Error)
			}
		}
	}
	if n.measured != nil {
		n.measured.Leftovers(removed, left)
	}
	return stay, candidates > removed+left
}

// strangers counts the directories of pods that nobody knows: most often there
// are none, and then the mount table need not be read.
func (n *Node) strangers() (count int, err error) {
	entries, err := os.ReadDir(filepath.Join(n.cfg.Root, "pods"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return 0, err
	}
	for _, e := range entries {
		if e.IsDir() && !n.manager.KnowsPod(state.PodUID(e.Name())) {
			count++
		}
	}
	if count > 0 && n.known().Unsure != "" {
		return 0, nil
	}
	return count, nil
}
