package mount

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Elsewhere finds another mount of the same directory wherever it is, also through a second
// mount of the root, except below the root, where mounts are the node's own. A mount of
// another directory of the same file system does not count.
//
// Items: C34.
func TestElsewhereFindsForeignMounts(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		root := mkdir(t, dir, "root")
		other := *k
		other.roots = []string{root}
		k = &other
		stage, pod, foreign := mkdir(t, root, "plugins/stage"), mkdir(t, root, "pods/pod"), mkdir(t, dir, "foreign")
		elsewhere := func() []string {
			t.Helper()
			found, err := k.Elsewhere(t.Context(), stage)
			must(t, err)
			return found
		}
		if got := elsewhere(); len(got) != 0 {
			t.Errorf("where nothing is mounted: %q", got)
		}
		must(t, k.Tmpfs(stage, TmpfsOptions{}))
		must(t, k.Bind(stage, pod, BindOptions{}))
		inside, part := mkdir(t, stage, "inside"), mkdir(t, dir, "part")
		must(t, k.Bind(inside, part, BindOptions{}))
		if got := elsewhere(); len(got) != 0 {
			t.Errorf("a mount of the node's own, and one of another directory: %q", got)
		}
		must(t, k.Bind(stage, foreign, BindOptions{ReadOnly: true}))
		if got := elsewhere(); !slices.Equal(got, []string{foreign}) {
			t.Errorf("got %q, want %s", got, foreign)
		}
		before, after := mkdir(t, stage, "before"), filepath.Join(stage, "after")
		used, copied := mkdir(t, root, "used"), mkdir(t, dir, "copied")
		must(t, k.Bind(before, used, BindOptions{}))
		must(t, k.Bind(before, copied, BindOptions{}))
		if got := elsewhere(); !slices.Equal(got, []string{foreign}) {
			t.Errorf("got %q, want %s", got, foreign)
		}
		must(t, os.Rename(before, after))
		if got, err := k.Elsewhere(t.Context(), used); err != nil || !slices.Equal(got, []string{copied}) {
			t.Errorf("of a directory that was renamed: got %q, %v, want %s", got, err, copied)
		}
		must(t, k.Unmount(t.Context(), foreign))
		alias := mkdir(t, dir, "alias")
		must(t, k.Bind(root, alias, BindOptions{Recursive: true}))
		if got := elsewhere(); len(got) != 0 {
			t.Errorf("through another mount of the root: %q", got)
		}
		if got, err := k.Elsewhere(t.Context(), filepath.Join(root, "absent/below")); err != nil || len(got) != 0 {
			t.Errorf("of what is not there: %q, %v", got, err)
		}
	})
}

// tableOf is a mount table that counts its calls.
type tableOf struct {
	entries map[uint64]Entry
	listed  int
	stats   int
}

func (f *tableOf) origins() *origins {
	o := newOrigins()
	o.list = func(after uint64) ([]uint64, error) {
		ids := slices.Sorted(maps.Keys(f.entries))
		ids = slices.DeleteFunc(ids, func(id uint64) bool { return id <= after })
		f.listed += len(ids)
		return ids, nil
	}
	o.stat = func(id uint64) (Entry, error) {
		f.stats++
		if e, there := f.entries[id]; there {
			return e, nil
		}
		return Entry{}, unix.ENOENT
	}
	return o
}

// Finding the mounts of one directory lists and asks for new mounts alone, however many
// mounts exist. Once in a while all are listed, so that those that went are forgotten, and
// more seldom all are asked again.
func TestOnlyNewMountsAreAskedFor(t *testing.T) {
	f := &tableOf{entries: map[uint64]Entry{}}
	for id := range uint64(1000) {
		f.entries[id+1] = Entry{ID: id + 1, Dev: id % 500, Root: "/r"}
	}
	o := f.origins()
	same := func(dev uint64, listed, asked int, want ...uint64) {
		t.Helper()
		f.listed, f.stats = 0, 0
		got, err := o.same(Entry{ID: dev + 501, Dev: dev, Root: "/r"})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) || f.listed != listed || f.stats != asked {
			t.Errorf("got %d of %d listed, %d asked for, %v; want %d, %d, %d", got, f.listed, f.stats, err, want, listed, asked)
		}
	}
	same(6, 1000, 1000, 7, 507)
	same(7, 0, 0, 8, 508)
	f.entries[2001] = Entry{ID: 2001, Dev: 7, Root: "/r"}
	delete(f.entries, 8)
	same(7, 1, 1, 8, 508, 2001)
	f.entries[1999] = Entry{ID: 1999, Dev: 7, Root: "/r"} // made before, and placed later
	o.lastFullList = o.lastFullList.Add(-2 * listAge)
	same(7, 1001, 1, 508, 1999, 2001)
	f.entries[10], f.entries[510] = Entry{ID: 10, Dev: 9, Root: "/renamed"}, Entry{ID: 510, Dev: 9, Root: "/renamed"}
	if got, err := o.same(f.entries[510]); len(got) != 2 || err != nil {
		t.Errorf("of a directory that was renamed: %d, %v", got, err)
	}
	f.entries[11] = Entry{ID: 11, Dev: 10, Root: "/renamed"}
	o.lastFullRead = o.lastFullRead.Add(-2 * originAge)
	same(10, 1001, 1001, 511)
	if len(o.of) != 1001 || len(o.ids) != 501 {
		t.Errorf("%d mounts of %d things are remembered, there are 1001 of 501", len(o.of), len(o.ids))
	}
}

// A caller gets a list that was made after its call, and callers that ask while a list is
// being made share the next one.
func TestTheMountsAreListedOnceForMany(t *testing.T) {
	o := newOrigins()
	began, goOn := make(chan int), make(chan struct{})
	lists := 0 // guarded by o.listing
	o.list = func(uint64) ([]uint64, error) {
		lists++
		began <- lists
		<-goOn
		return make([]uint64, 0), nil
	}
	var first sync.WaitGroup
	first.Go(func() { _ = o.refresh() })
	<-began
	var others sync.WaitGroup
	asked := make(chan struct{}, 50)
	for range 50 {
		others.Go(func() {
			asked <- struct{}{}
			if err := o.refresh(); err != nil {
				t.Error(err)
			}
		})
	}
	for range 50 {
		<-asked
	}
	goOn <- struct{}{}
	first.Wait()
	done := make(chan struct{})
	go func() { others.Wait(); close(done) }()
	for {
		select {
		case <-began:
			goOn <- struct{}{}
			continue
		case <-done:
		}
		break
	}
	if lists < 2 || lists > 51 {
		t.Errorf("listed %d times", lists)
	}
}
