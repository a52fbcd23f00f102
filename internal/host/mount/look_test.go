package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLookSaysWhatIsThere(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		source := mkdir(t, dir, "source")
		plain := mkdir(t, dir, "plain")
		file := write(t, dir+"/file", "")
		bound := mkdir(t, dir, "bound")
		must(t, k.Bind(source, bound, BindOptions{}))
		boundFile := write(t, dir+"/bound-file", "")
		must(t, k.Bind(file, boundFile, BindOptions{ReadOnly: true}))
		stacked := mkdir(t, dir, "stacked")
		for range 3 {
			must(t, k.Bind(source, stacked, BindOptions{}))
		}
		node := dir + "/node"
		must(t, unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 99))))
		spaced := mkdir(t, dir, "a b\tc\nd\\e#f")
		must(t, k.Bind(source, spaced, BindOptions{}))
		toMount := link(t, bound, dir+"/link")

		dev := look(t, New(), dir).Dev
		for _, c := range []struct {
			path string
			want Info
		}{
			{dir + "/absent", Info{}},
			{dir + "/absent/below", Info{}},
			{file + "/below", Info{}},
			{plain, Info{Exists: true, Dev: dev}},
			{file, Info{Exists: true, Dev: dev}},
			{bound, Info{Exists: true, Mounted: true, Layers: 1, Dev: dev}},
			{bound + "/../bound/", Info{Exists: true, Mounted: true, Layers: 1, Dev: dev}},
			{boundFile, Info{Exists: true, Mounted: true, Layers: 1, Dev: dev, ReadOnly: true}},
			{stacked, Info{Exists: true, Mounted: true, Layers: 3, Dev: dev}},
			{spaced, Info{Exists: true, Mounted: true, Layers: 1, Dev: dev}},
			{node, Info{Exists: true, BlockDevice: true, Dev: device(7, 99)}},
			{toMount, Info{Exists: true, Dev: dev}},
		} {
			got := look(t, k, c.path)
			if hasID := got.MountID != 0; hasID != (c.want.Mounted && k.has(MountID)) {
				t.Errorf("Look(%q).MountID = %d", c.path, got.MountID)
			}
			got.MountID = 0
			if got != c.want {
				t.Errorf("Look(%q)\n got %+v\nwant %+v", c.path, got, c.want)
			}
		}
	})
}

func TestMountIDIsNeverUsedAgain(t *testing.T) {
	needs(t, MountID)
	k, dir := New(), scratch(t)
	target := mkdir(t, dir, "target")
	seen := map[uint64]bool{}
	for range 20 {
		must(t, k.Bind(dir, target, BindOptions{}))
		id := look(t, k, target).MountID
		if seen[id] || id == 0 {
			t.Fatalf("mount id %d, seen before: %v", id, seen[id])
		}
		seen[id] = true
		must(t, k.Unmount(t.Context(), target))
	}
}

// A path from outside never leads through a link (rule 8).
func TestNoLinkInAPathIsFollowed(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		real := mkdir(t, dir, "real")
		mkdir(t, real, "sub")
		alias := link(t, real, dir+"/alias")
		for what, err := range map[string]error{
			"look":      func() error { _, err := k.Look(t.Context(), alias+"/sub"); return err }(),
			"look deep": func() error { _, err := k.Look(t.Context(), alias+"/sub/x"); return err }(),
			"bind to":   k.Bind(real, alias+"/sub", BindOptions{}),
			"bind from": k.Bind(alias+"/sub", real, BindOptions{}),
			"bind onto": k.Bind(real, alias, BindOptions{}),
			"bind link": k.Bind(alias, real, BindOptions{}),
			"tmpfs":     k.Tmpfs(alias+"/sub", TmpfsOptions{}),
			"unmount":   k.Unmount(t.Context(), alias+"/sub"),
			"remount":   k.Restrict(alias, BindOptions{ReadOnly: true}),
			"remove":    k.RemoveTree(t.Context(), alias, "sub"),
			"list":      func() error { _, err := k.List(t.Context(), alias+"/sub"); return err }(),
			"shared":    func() error { _, err := k.IsShared(alias + "/sub"); return err }(),
		} {
			if !errors.Is(err, unix.ELOOP) || !strings.Contains(err.Error(), alias) {
				t.Errorf("%s: error %v, want one that names the path and is ELOOP", what, err)
			}
		}
		if !exists(real + "/sub") {
			t.Error("what the link leads to was removed")
		}
	})
}

func TestOnlyTheRootsOwnPathMayBeALink(t *testing.T) {
	for name, plain := range kernels(t) {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			real := mkdir(t, dir, "real")
			mkdir(t, real, "pods", "target")
			root := link(t, real, dir+"/root")
			link(t, "target", real+"/pods/alias")
			k := New(root).Without(^plain.Features())

			must(t, k.Bind(real, root+"/pods/target", BindOptions{}))
			for _, path := range []string{root + "/pods/target", real + "/pods/target"} {
				if !look(t, k, path).Mounted {
					t.Errorf("%s is not mounted", path)
				}
			}
			if entries, err := k.List(t.Context(), root); err != nil || len(entries) != 1 || entries[0].Path != real+"/pods/target" {
				t.Errorf("List(root) = %+v, %v", entries, err)
			}
			if _, err := k.Look(t.Context(), root+"/pods/alias/x"); !errors.Is(err, unix.ELOOP) {
				t.Errorf("a link below the root: %v, want ELOOP", err)
			}
			if !look(t, k, root).Exists || look(t, k, root).Mounted {
				t.Errorf("the root itself: %+v", look(t, k, root))
			}
			must(t, k.Unmount(t.Context(), root+"/pods/target"))
		})
	}
}

func TestPathsThatAreNoneAreRefused(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		for _, path := range []string{"", ".", "relative", "../up", dir + "/nul\x00byte"} {
			if _, err := k.Look(t.Context(), path); !errors.Is(err, unix.EINVAL) {
				t.Errorf("Look(%q): %v, want EINVAL", path, err)
			}
			if err := k.Bind(path, dir, BindOptions{}); !errors.Is(err, unix.EINVAL) {
				t.Errorf("Bind(%q): %v, want EINVAL", path, err)
			}
		}
		long := dir + "/" + strings.Repeat("x", 4096)
		if _, err := k.Look(t.Context(), long); !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("a name of 4 KiB: %v, want ENAMETOOLONG", err)
		}
	})
}

// A file system whose server has died is mounted all the same.
func TestLookSeesADeadMount(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "dead")
		server := mountFuse(t, target)
		must(t, server.Close())
		if _, err := os.Stat(target); !errors.Is(err, unix.ENOTCONN) {
			t.Fatalf("stat of a dead mount: %v, want ENOTCONN", err)
		}
		if got := look(t, k, target); !got.Mounted || got.Layers != 1 {
			t.Errorf("Look = %+v, want one layer", got)
		}
		must(t, k.Unmount(t.Context(), target))
		if got := look(t, k, target); got.Mounted {
			t.Errorf("after Unmount: %+v", got)
		}
	})
}

// Rule 9: a server that never answers delays no other.
func TestLookDoesNotAskTheStorage(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "hung")
		server := mountFuse(t, target) // never answers
		defer server.Close()
		if got := look(t, k, target); !got.Mounted || got.Layers != 1 {
			t.Errorf("Look = %+v, want one layer", got)
		}
		if shared, err := k.IsShared(target); err != nil || shared {
			t.Errorf("IsShared = %v, %v", shared, err)
		}
		if _, err := k.List(t.Context(), dir); err != nil {
			t.Error(err)
		}
		must(t, k.Unmount(t.Context(), target))
	})
}

// mountFuse mounts a file system whose server is the holder of the returned file.
func mountFuse(t *testing.T, target string) *os.File {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(t, err)
	data := "rootmode=40000,user_id=0,group_id=0,fd=" + filepath.Base(procFD(int(server.Fd())))
	must(t, unix.Mount("test", target, "fuse", 0, data))
	return server
}

// lookInTable finds mounts that cannot be opened because their storage is dead.
func TestLookInTableFindsTheMountsAtAPath(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "target")
		p, err := k.place(target)
		must(t, err)
		defer p.close()
		if _, err := k.lookInTable(p, unix.EIO); !errors.Is(err, unix.EIO) {
			t.Errorf("nothing mounted: %v, want the cause", err)
		}
		must(t, k.Bind(dir, target, BindOptions{}))
		must(t, k.Bind(dir, target, BindOptions{ReadOnly: true}))
		got, err := k.lookInTable(p, unix.EIO)
		if want := look(t, k, target); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	})
}
