package mount

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// Another mount of the same is found wherever it is but below the root, where it
// is the node's own, also seen through a second mount of the root; one of another
// directory of the same file system is another thing.
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

// Who asks for the table gets one that was read afterwards, and those who ask
// while another is read share the next one.
func TestTheTableIsReadOnceForMany(t *testing.T) {
	var ts tables
	began, goOn := make(chan int), make(chan struct{})
	reads := 0
	read := func() ([]Entry, error) {
		reads++
		began <- reads
		<-goOn
		return make([]Entry, reads), nil
	}
	var first sync.WaitGroup
	first.Go(func() { _, _ = ts.read(read) })
	<-began
	var others sync.WaitGroup
	asked := make(chan struct{}, 50)
	for range 50 {
		others.Go(func() {
			asked <- struct{}{}
			if entries, err := ts.read(read); err != nil || len(entries) < 2 {
				t.Errorf("%d entries, %v: read before it was asked for", len(entries), err)
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
	if reads < 2 || reads > 51 {
		t.Errorf("read %d times", reads)
	}
}
