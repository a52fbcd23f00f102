package mount

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Elsewhere returns where else what is mounted at path is mounted, in this
// process's mount namespace: the same of the same file system, at a place that is
// not below the Kernel's roots, which are the node's own. A root that is itself
// mounted at a second place does not count, nor does what is below it there.
// It returns none where nothing is mounted at path.
func (k *Kernel) Elsewhere(ctx context.Context, path string) ([]string, error) {
	found, err := inLane(ctx, k.lanes, lane{"find", path}, func() ([]string, error) { return k.sameAt(path) })
	if err != nil {
		return nil, fmt.Errorf("find other mounts of %s: %w", path, err)
	}
	return found, nil
}

func (k *Kernel) sameAt(path string) ([]string, error) {
	here, err := k.canonical(path)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, root := range k.roots {
		if root, err = k.canonical(root); err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	entries, err := k.tables.read(k.table)
	if err != nil {
		return nil, err
	}
	var at *Entry
	for _, e := range entries {
		if e.Path == here { // the topmost comes last
			at = &e
		}
	}
	if at == nil {
		return nil, nil
	}
	entries = slices.Clone(entries) // others have the same
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Dev != at.Dev || e.Root != at.Root })
	own := []string{here} // by its name below the root, which it has below another mount of the root too
	for _, root := range roots {
		for _, e := range entries {
			if within(e.Path, root) {
				own = append(own, strings.TrimPrefix(e.Path, root))
			}
		}
	}
	var found []string
	for _, e := range entries {
		ours := slices.ContainsFunc(own, func(name string) bool { return strings.HasSuffix(e.Path, name) })
		if !ours && !slices.Contains(found, e.Path) {
			found = append(found, e.Path)
		}
	}
	return found, nil
}

// tables has many who want the mount table at once read it once: it is as long
// as there are mounts. Each gets one that was read after it asked.
type tables struct {
	reading sync.Mutex

	mu   sync.Mutex // guards next
	next *table
}

// table is one that is about to be read.
type table struct {
	done    chan struct{}
	entries []Entry
	err     error
}

func (t *tables) read(read func() ([]Entry, error)) ([]Entry, error) {
	t.mu.Lock()
	n := t.next
	first := n == nil
	if first {
		n = &table{done: make(chan struct{})}
		t.next = n
	}
	t.mu.Unlock()
	if !first {
		<-n.done
		return n.entries, n.err
	}
	t.reading.Lock()
	t.mu.Lock()
	t.next = nil // whoever asks from now on may have changed it since
	t.mu.Unlock()
	n.entries, n.err = read()
	t.reading.Unlock()
	close(n.done)
	return n.entries, n.err
}
