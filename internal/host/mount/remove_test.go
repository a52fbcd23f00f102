package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRemoveTreeRemovesAllOfItAndNothingElse(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		outside := write(t, mkdir(t, dir, "outside")+"/canary", "alive")
		tree := mkdir(t, dir, "tree")
		for i := range 2 * readBatch {
			write(t, tree+"/"+strconv.Itoa(i), "")
		}
		link(t, dir+"/outside", mkdir(t, tree, "a", "b")+"/link")
		link(t, outside, tree+"/a/file-link")
		must(t, os.Link(outside, tree+"/a/hard"))
		must(t, unix.Mkfifo(tree+"/a/fifo", 0o600))
		must(t, os.Chmod(mkdir(t, tree, "closed"), 0))
		link(t, "outside", dir+"/top-link")

		must(t, k.RemoveTree(t.Context(), dir, "tree"))
		must(t, k.RemoveTree(t.Context(), dir, "tree"))
		must(t, k.RemoveTree(t.Context(), dir+"/absent", "tree"))
		must(t, k.RemoveTree(t.Context(), dir, "top-link"))
		if exists(tree) || exists(dir+"/top-link") {
			t.Error("something is left")
		}
		if read(t, outside) != "alive" {
			t.Error("a link was followed")
		}
	})
}

// Rule 4: RemoveTree deletes nothing through a mount, and nothing around one.
func TestRemoveTreeRefusesATreeWithAMountInIt(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		canary := write(t, mkdir(t, dir, "source")+"/canary", "alive")
		for name, mounted := range map[string]string{
			"the tree": "tree", "deep in it": "tree/a/b c", "a file": "tree/a/file",
		} {
			target := filepath.Join(dir, mounted)
			source := dir + "/source" // on the same device: only the mount distinguishes them
			if name == "a file" {
				source = canary
				write(t, mkdir(t, filepath.Dir(target))+"/file", "")
			} else {
				mkdir(t, target)
			}
			sibling := write(t, dir+"/tree/sibling", "alive")
			must(t, k.Bind(source, target, BindOptions{}))

			err := k.RemoveTree(t.Context(), dir, "tree")
			if !errors.Is(err, ErrMounted) || !strings.Contains(err.Error(), target) {
				t.Errorf("%s: %v, want ErrMounted that names %s", name, err, target)
			}
			if read(t, canary) != "alive" {
				t.Fatalf("%s: deleted through a mount", name)
			}
			must(t, k.Unmount(t.Context(), target))
			if name != "the tree" && read(t, sibling) != "alive" {
				t.Errorf("%s: something beside the mount was deleted", name)
			}
			must(t, k.RemoveTree(t.Context(), dir, "tree"))
		}
	})
}

// RemoveTree finds a mount among few files and among many, in a shallow tree and in a deep
// one, before it removes anything.
func TestRemoveTreeFindsAMountInTreesOfAllSizes(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		source := mkdir(t, dir, "source")
		for _, shape := range []struct{ files, depth int }{{3, 1}, {maxSearched + 10, 1}, {3, maxSearchDepth + 5}} {
			top := mkdir(t, dir, "tree")
			deep := mkdir(t, top, strings.Repeat("d/", shape.depth)+"mounted")
			for i := range shape.files {
				write(t, top+"/"+strconv.Itoa(i), "")
			}
			must(t, k.Bind(source, deep, BindOptions{}))
			if err := k.RemoveTree(t.Context(), dir, "tree"); !errors.Is(err, ErrMounted) || !strings.Contains(err.Error(), deep) {
				t.Errorf("%+v: %v, want ErrMounted that names %s", shape, err, deep)
			}
			if left, err := os.ReadDir(top); err != nil || len(left) != shape.files+1 {
				t.Errorf("%+v: %d entries are left beside the mount, want %d (%v)", shape, len(left), shape.files+1, err)
			}
			must(t, k.Unmount(t.Context(), deep))
			must(t, k.RemoveTree(t.Context(), dir, "tree"))
		}
	})
}

// BenchmarkRemoveTree must not depend on the number of mounts.
func BenchmarkRemoveTree(b *testing.B) {
	for _, others := range []int{0, 5000} {
		b.Run(fmt.Sprintf("mounts=%d", others), func(b *testing.B) {
			k, _, _ := manyMounts(b, others)
			dir := scratch(b)
			for b.Loop() {
				for i := range 4 {
					write(b, mkdir(b, dir, "tree", "data")+"/"+strconv.Itoa(i), "")
				}
				must(b, k.RemoveTree(b.Context(), dir, "tree"))
			}
		})
	}
}

// The walk itself crosses no mount, since one may appear after the first look.
func TestTheWalkCrossesNoMount(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		canary := write(t, mkdir(t, dir, "source")+"/canary", "alive")
		target := mkdir(t, dir, "tree", "a", "mounted")
		must(t, k.Bind(dir+"/source", target, BindOptions{}))
		p, err := k.place(dir + "/tree")
		must(t, err)
		defer p.close()
		r := remover{k: k}
		if err := r.remove(t.Context(), p.dir, p.name, 0); !errors.Is(err, ErrMounted) || !strings.Contains(err.Error(), "tree: a: mounted") {
			t.Errorf("%v, want ErrMounted that names the way", err)
		}
		if fd, err := k.openSameMount(p.dir, "tree/a/mounted"); !errors.Is(err, unix.EXDEV) {
			t.Errorf("opened %d across a mount: %v", fd, err)
		}
		if read(t, canary) != "alive" {
			t.Error("deleted through a mount")
		}
	})
}

// A pod may leave a tree deeper than descriptors and paths allow.
func TestRemoveTreeOfAnyDepth(t *testing.T) {
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: limit.Max}))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		const depth = 3000
		top, err := unix.Open(mkdir(t, dir, "tree"), unix.O_PATH, 0)
		must(t, err)
		fd := top
		for range depth {
			must(t, unix.Mkdirat(fd, "0123456789", 0o755))
			next, err := unix.Openat(fd, "0123456789", unix.O_PATH, 0)
			must(t, err)
			unix.Close(fd)
			fd = next
		}
		unix.Close(fd)
		must(t, k.RemoveTree(t.Context(), dir, "tree"))
		if exists(dir + "/tree") {
			t.Error("it is still there")
		}
	})
}

// C2, C3: during the removal, a process that can write in the tree exchanges directories
// for links to the outside.
//
// Attacks: C2, C3.
func TestAttackRemoveTreeFollowsNoLinkInARace(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		outside := mkdir(t, dir, "outside")
		for i := range 20 {
			write(t, outside+"/"+strconv.Itoa(i), "alive")
		}
		link(t, outside, dir+"/link")
		stop := make(chan struct{})
		var attacker sync.WaitGroup
		attacker.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					unix.Renameat2(unix.AT_FDCWD, dir+"/link", unix.AT_FDCWD, dir+"/tree/a/b", unix.RENAME_EXCHANGE)
				}
			}
		})
		for range 100 {
			for i := range 20 { // they may hit the files outside, which have the same names
				write(t, mkdir(t, dir, "tree", "a", "b")+"/"+strconv.Itoa(i), "")
			}
			if err := k.RemoveTree(t.Context(), dir, "tree"); err != nil {
				t.Error(err)
			}
			must(t, os.RemoveAll(dir+"/link"))
			link(t, outside, dir+"/link")
		}
		close(stop)
		attacker.Wait()
		if names, err := os.ReadDir(outside); err != nil || len(names) != 20 {
			t.Errorf("%d of 20 files are left outside: %v", len(names), err)
		}
	})
}

// If another process removes the same tree, RemoveTree does not fail.
func TestADirectoryThatGoesWhileItIsEmptiedIsGone(t *testing.T) {
	at := mkdir(t, t.TempDir(), "gone")
	d, err := os.Open(at)
	must(t, err)
	defer d.Close()
	must(t, os.Remove(at))
	r := remover{k: New(filepath.Dir(at)), top: -1}
	must(t, r.removeBelow(t.Context(), d, "gone", 0))
}

func TestRemoveTreeTakesOneNameOnly(t *testing.T) {
	k, dir := New(), scratch(t)
	mkdir(t, dir, "a", "b")
	for _, name := range []string{"", ".", "..", "/", "a/b", "../" + filepath.Base(dir), "a/", "a\x00"} {
		if err := k.RemoveTree(t.Context(), dir+"/a", name); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%q: %v, want EINVAL", name, err)
		}
	}
	if !exists(dir + "/a/b") {
		t.Error("something was removed")
	}
}

func TestRemoveTreeNamesWhatItCouldNotRemove(t *testing.T) {
	k, dir := New(), scratch(t)
	write(t, mkdir(t, dir, "tree", "a")+"/stuck", "")
	write(t, dir+"/tree/a/other", "")
	setImmutable(t, dir+"/tree/a/stuck", true)
	defer setImmutable(t, dir+"/tree/a/stuck", false)
	err := k.RemoveTree(t.Context(), dir, "tree")
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "tree: a: stuck") {
		t.Errorf("%v, want EPERM that names the file", err)
	}
	if exists(dir + "/tree/a/other") {
		t.Error("one file that stays kept another")
	}
}

func setImmutable(t *testing.T, path string, on bool) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	flags := 0
	if on {
		flags = 0x10 // FS_IMMUTABLE_FL
	}
	must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags))
}
