package mount

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// A Tracker reports the same as a look at the whole table, whatever is mounted, unmounted,
// remounted, stacked or moved within the directory.
func TestATrackerTellsWhatTheTableHas(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		under := mkdir(t, dir, "under")
		tracker := k.Track(under)
		same := func(what string, want int) {
			t.Helper()
			whole, err := k.List(t.Context(), under)
			must(t, err)
			got, err := tracker.List(t.Context())
			must(t, err)
			if diff := cmp.Diff(whole, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Entry{}, "Root", "Source")); diff != "" || len(got) != want {
				t.Errorf("%s: %d mounts, want %d; the table (-) and the Tracker (+):\n%s", what, len(got), want, diff)
			}
		}
		source := mkdir(t, dir, "source")
		a, b := mkdir(t, under, "a"), mkdir(t, under, "b")
		same("nothing", 0)
		must(t, k.Tmpfs(a, TmpfsOptions{}))
		must(t, k.Tmpfs(mkdir(t, dir, "elsewhere"), TmpfsOptions{}))
		same("one, and one elsewhere", 1)
		must(t, k.Bind(source, a, BindOptions{}))
		same("two stacked", 2)
		must(t, k.Bind(source, b, BindOptions{}))
		must(t, k.Unmount(t.Context(), dir+"/elsewhere"))
		same("another", 3)
		must(t, unix.Mount("", b, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
		same("read-only", 3)
		must(t, unix.Mount(b, mkdir(t, under, "c"), "", unix.MS_MOVE, ""))
		same("moved", 3)
		must(t, k.Unmount(t.Context(), a))
		same("one path less", 1)
		must(t, k.Unmount(t.Context(), under+"/c"))
		same("nothing again", 0)
		if got, err := k.Track(dir + "/absent").List(t.Context()); err != nil || len(got) != 0 {
			t.Errorf("below nothing: %v, %v", got, err)
		}
	})
}

// A Tracker does not look again at a mount that was elsewhere, until it looks at all mounts.
func TestATrackerLeavesMountsElsewhereAlone(t *testing.T) {
	k, dir := New(), scratch(t)
	if !k.has(MountID) {
		t.Skip("this kernel has no unique ids")
	}
	must(t, k.SetPropagation(dir, Private)) // a mount can be moved only from a private one
	under, other := mkdir(t, dir, "under", "place"), mkdir(t, dir, "other")
	must(t, k.Tmpfs(other, TmpfsOptions{}))
	tracker := k.Track(dir + "/under")
	for i, want := range []int{0, 0, 1} {
		switch i {
		case 1:
			must(t, unix.Mount(other, under, "", unix.MS_MOVE, ""))
		case 2:
			tracker.Forget()
		}
		if got, err := tracker.List(t.Context()); err != nil || len(got) != want {
			t.Errorf("list %d: %v, %v; want %d mounts", i, got, err, want)
		}
	}
}

// BenchmarkTrack lists 100 mounts, with 20,000 elsewhere.
func BenchmarkTrack(b *testing.B) {
	for _, others := range []int{100, 20_000} {
		k, _, _ := manyMounts(b, others)
		dir, source := scratch(b), scratch(b)
		for i := range 100 {
			must(b, k.Bind(source, mkdir(b, dir, fmt.Sprint(i)), BindOptions{}))
		}
		b.Run(fmt.Sprintf("elsewhere=%d", others), func(b *testing.B) {
			tracker := k.Track(dir)
			for b.Loop() {
				if entries, err := tracker.List(b.Context()); err != nil || len(entries) < 100 {
					b.Fatalf("%d mounts, %v", len(entries), err)
				}
			}
		})
	}
}
