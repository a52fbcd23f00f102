package mount

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

func TestListHasTheMountsBelowADirectory(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		under := mkdir(t, dir, "under")
		odd := mkdir(t, under, "a b\tc\nd\\040e#f")
		must(t, k.Tmpfs(odd, TmpfsOptions{}))
		must(t, k.Bind(mkdir(t, dir, "source dir"), mkdir(t, under, "bound"), BindOptions{ReadOnly: true}))
		must(t, k.Tmpfs(mkdir(t, dir, "under-not"), TmpfsOptions{}))
		stacked := mkdir(t, under, "stacked")
		must(t, k.Tmpfs(stacked, TmpfsOptions{}))
		must(t, k.Bind(dir+"/source dir", stacked, BindOptions{}))

		entries, err := k.List(t.Context(), under)
		must(t, err)
		type short struct {
			Path, Root, FSType, Source string
			ReadOnly                   bool
		}
		var got []short
		for _, e := range entries {
			got = append(got, short{e.Path, e.Root, e.FSType, e.Source, e.ReadOnly})
			if (e.ID != 0) != k.has(MountID) {
				t.Errorf("id %d", e.ID)
			}
		}
		want := []short{
			{odd, "/", "tmpfs", "tmpfs", false},
			{under + "/bound", "/source dir", "tmpfs", "scratch", true},
			{stacked, "/", "tmpfs", "tmpfs", false},
			{stacked, "/source dir", "tmpfs", "scratch", false},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if top := entries[len(entries)-1]; top.ID != look(t, k, stacked).MountID {
			t.Error("the topmost of stacked mounts is not the last")
		}
		if entries, err := k.List(t.Context(), dir+"/absent/below"); err != nil || len(entries) != 0 {
			t.Errorf("below nothing: %v, %v", entries, err)
		}
	})
}

// Both ways to read the mount table agree on every mount.
func TestTablesAgree(t *testing.T) {
	k := New()
	dir := scratch(t)
	must(t, k.Tmpfs(mkdir(t, dir, "a b"), TmpfsOptions{}))
	must(t, k.SetPropagation(dir+"/a b", Shared))
	byID, err := k.List(t.Context(), "/")
	must(t, err)
	parsed, err := k.Without(MountID).List(t.Context(), "/")
	must(t, err)
	if diff := cmp.Diff(parsed, byID, cmpopts.IgnoreFields(Entry{}, "ID", "ParentID")); diff != "" {
		t.Errorf("mountinfo (-) and statmount (+):\n%s", diff)
	}
}

// A mount put below another (MOVE_MOUNT_BENEATH, or by propagation) is younger
// than the one that covers it.
func TestTheTopmostMountIsNotTheYoungest(t *testing.T) {
	needs(t, FSContext) // to make such a mount
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		const moveMountBeneath = 0x200 // Linux 6.5
		target := mkdir(t, dir, "target")
		must(t, unix.Mount("top", target, "tmpfs", unix.MS_RDONLY, ""))
		c, err := openContext("tmpfs")
		must(t, err)
		defer c.close()
		must(t, c.set("source=below"))
		below, err := c.mount(0)
		must(t, err)
		defer unix.Close(below)
		must(t, unix.MoveMount(below, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH|moveMountBeneath))

		entries, err := k.List(t.Context(), target)
		if err != nil || len(entries) != 2 || entries[0].Source != "below" || entries[1].Source != "top" {
			t.Errorf("%+v, %v; want below, top", entries, err)
		}
		if got := look(t, k, target); got.Layers != 2 || !got.ReadOnly || got.MountID != entries[1].ID {
			t.Errorf("Look = %+v", got)
		}
	})
}

// Ids say nothing about the order of stacking: a mount can be moved.
func TestMountsAreOrderedByWhatTheyAreMountedOn(t *testing.T) {
	mounts := [][2]uint64{{5, 9}, {9, 7}, {7, 1}, {1, 1}, {8, 7}}
	sortByDepth(mounts, func(m [2]uint64) (uint64, uint64) { return m[0], m[1] })
	if want := [][2]uint64{{1, 1}, {7, 1}, {9, 7}, {8, 7}, {5, 9}}; !slices.Equal(mounts, want) {
		t.Errorf("got %v, want %v", mounts, want)
	}
}
