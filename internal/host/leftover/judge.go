package leftover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// judge adds an item for the directory rel, unless it is known.
func (w *walk) judge(kind, rel string) {
	item := Item{Kind: kind, Path: w.abs(rel)}
	if w.isKnown(item.Path) {
		return
	}
	switch why := w.reasonToKeep(rel); {
	case why != "":
		item.Why = why
	case w.known.Unsure != "":
		item.Why = "it is empty, but " + w.known.Unsure
	default:
		item.Safe, item.Why = true, "only empty directories, which no pod or record needs"
	}
	w.items = append(w.items, item)
}

// reasonToKeep returns why a tree must not be removed, or "".
func (w *walk) reasonToKeep(rel string) string {
	if at, ok := w.mounts.below(rel); ok {
		return mountedWhy(w.abs(at), w.mounted[at])
	}
	f := finding{left: maxEntries}
	w.search(rel, 0, &f)
	switch {
	case f.err != nil:
		return "it cannot be inspected: " + f.err.Error()
	case f.files > 0:
		return fmt.Sprintf("it contains %s, which may be data (%d such entries); if it is not, remove it yourself",
			w.abs(f.first), f.files)
	default:
		return ""
	}
}

// finding is what a search found in a tree.
type finding struct {
	files int
	first string
	left  int
	err   error
}

// search looks below rel for anything except directories and markers.
func (w *walk) search(rel string, depth int, f *finding) {
	switch {
	case f.err != nil:
		return
	case depth > maxDepth:
		f.err = fmt.Errorf("it has more than %d levels", maxDepth)
		return
	case w.ctx.Err() != nil:
		f.err = context.Cause(w.ctx)
		return
	}
	dir, err := w.open(rel)
	if err != nil {
		f.err = err
		return
	}
	defer dir.Close()
	entries, err := dir.ReadDir(f.left + 1)
	if len(entries) > f.left {
		f.err = fmt.Errorf("it has more than %d entries", maxEntries)
		return
	}
	f.left -= len(entries)
	for _, e := range entries {
		at := rel + "/" + e.Name()
		switch {
		case e.IsDir():
			w.search(at, depth+1, f)
		case w.isMarker(dir, at):
		default:
			if f.files++; f.first == "" {
				f.first = at
			}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
}

// isMarker reports whether rel is the empty file "ready" with which the kubelet notes that
// it has set up a pod's volume of a built-in kind: pods/UID/plugins/KIND/NAME/ready.
func (w *walk) isMarker(dir *os.File, rel string) bool {
	if ok, err := path.Match("pods/*/plugins/*/*/ready", rel); err != nil || !ok {
		return false
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), path.Base(rel), &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0
}

// remove removes the tree at an absolute path, the deepest directories first. It stops at
// anything that has changed since it was judged.
func (w *walk) remove(at string) error {
	rel := w.rel(at)
	if why := w.reasonToKeep(rel); why != "" {
		return errors.New(why)
	}
	parent, err := w.open(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer parent.Close()
	return w.removeDir(parent, rel, 0)
}

// removeDir removes the directory rel, which is in parent, and the directories and markers
// in it.
func (w *walk) removeDir(parent *os.File, rel string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s has more than %d levels", w.abs(rel), maxDepth)
	}
	dir, err := w.open(rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := rel + "/" + e.Name()
		switch {
		case e.IsDir():
			err = w.removeDir(dir, at, depth+1)
		case w.isMarker(dir, at):
			err = unlink(dir, at, 0)
		default:
			err = fmt.Errorf("%s has appeared since", w.abs(at))
		}
		if err != nil {
			return err
		}
	}
	return unlink(parent, rel, unix.AT_REMOVEDIR)
}

func unlink(dir *os.File, rel string, flags int) error {
	if err := unix.Unlinkat(int(dir.Fd()), path.Base(rel), flags); err != nil {
		return fmt.Errorf("remove %s: %w", strings.TrimPrefix(rel, "./"), err)
	}
	return nil
}
