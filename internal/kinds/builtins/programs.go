package builtins

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
)

// Programs returns a function that tells the loop when a kind's program is installed or removed. A volume of a kind
// without its program is not begun, since its removal may need the program, too. Where the kernel has no watch
// left it is begun: the calls fail, and are repeated.
func (s *Set) Programs(l Loop) func(context.Context) error {
	return func(ctx context.Context) error { return s.programs(ctx, l, program.Dirs()) }
}

func (s *Set) programs(ctx context.Context, l Loop, dirs []string) error {
	w, err := watch(dirs)
	if err != nil {
		s.logger.Warn("programs that are installed later are not noticed", "err", err)
		s.tell(l, nil)
		return nil
	}
	defer w.Close()
	for {
		s.tell(l, dirs)
		select {
		case <-w.Events:
		case <-w.Errors: // events were lost
		case <-ctx.Done():
			return nil
		}
	}
}

// watch watches the directories that exist.
func watch(dirs []string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if err := w.Add(real); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), w.Close())
		}
	}
	return w, nil
}

// tell registers the kinds again whose programs are in dirs now and were not, or the other way round. Without dirs
// each counts as installed.
func (s *Set) tell(l Loop, dirs []string) {
	for _, k := range kind.All() {
		why := ""
		if dirs != nil {
			why = unusable(k, dirs)
		}
		if why != s.told[k.Name] {
			s.register(l, k, why)
		}
	}
}

// unusable says which program of dirs a kind lacks; "" if none.
func unusable(k kind.Kind, dirs []string) string {
	if len(lacks(k.Name, dirs)) == 0 {
		return ""
	}
	return k.Program + " is not installed: no volume of kind " + string(k.Name) + " can be mounted without it"
}
