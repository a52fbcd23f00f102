package unpack_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/imagetest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

type entries = []imagetest.Entry

// apply unpacks layers into dir.
func apply(ctx context.Context, t *testing.T, dir string, layers ...entries) error {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree, err := unpack.New(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if err := tree.Apply(ctx, bytes.NewReader(imagetest.Layer(t, l...))); err != nil {
			return err
		}
	}
	return nil
}

// tree returns type, permissions and content or target of everything below dir, by
// path.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		what := st.Mode().String()
		switch st.Mode().Type() {
		case 0:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(b)
		case fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " " + to
		}
		found[rel] = what
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLayers(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	for name, c := range map[string]struct {
		layers []entries
		want   map[string]string
	}{
		"missing directories": {
			[]entries{{imagetest.File("a/b/c", "x")}},
			map[string]string{"a": "drwxr-xr-x", "a/b": "drwxr-xr-x", "a/b/c": "-rw-r--r-- x"},
		},
		"ways to write a path": {
			[]entries{{imagetest.Dir("./"), imagetest.Dir("./a/"), imagetest.File("/a/b", "x"), imagetest.File("./c", "y")}},
			map[string]string{"a": "drwxr-xr-x", "a/b": "-rw-r--r-- x", "c": "-rw-r--r-- y"},
		},
		"an upper layer replaces": {
			[]entries{
				{imagetest.File("file", "x"), imagetest.Dir("dir"), imagetest.File("dir/a", "a"), imagetest.Symlink("link", "dir")},
				{imagetest.Dir("file"), imagetest.File("dir", "y"), imagetest.Dir("link"), imagetest.File("link/b", "z")},
			},
			map[string]string{"file": "drwxr-xr-x", "dir": "-rw-r--r-- y", "link": "drwxr-xr-x", "link/b": "-rw-r--r-- z"},
		},
		"a directory that is there keeps what is in it": {
			[]entries{{imagetest.Dir("d"), imagetest.File("d/a", "a")}, {imagetest.Dir("d"), imagetest.File("d/b", "b")}},
			map[string]string{"d": "drwxr-xr-x", "d/a": "-rw-r--r-- a", "d/b": "-rw-r--r-- b"},
		},
		"through a link, as in a container": {
			[]entries{{imagetest.Dir("usr/lib"), imagetest.Symlink("lib", "/usr/lib")}, {imagetest.File("lib/a", "a")}},
			map[string]string{"usr": "drwxr-xr-x", "usr/lib": "drwxr-xr-x", "usr/lib/a": "-rw-r--r-- a", "lib": "Lrwxrwxrwx /usr/lib"},
		},
		"whiteouts": {
			[]entries{
				{imagetest.File("a", "a"), imagetest.Dir("d"), imagetest.File("d/x", "x"), imagetest.File("b", "b")},
				{imagetest.File(".wh.a", ""), imagetest.File(".wh.d", ""), imagetest.File(".wh.none", ""), imagetest.File(".wh..wh.plnk", "")},
			},
			map[string]string{"b": "-rw-r--r-- b"},
		},
		"whiteouts hide lower layers only": {
			[]entries{{imagetest.File("a", "lower")}, {imagetest.File("a", "upper"), imagetest.File(".wh.a", "")}},
			map[string]string{"a": "-rw-r--r-- upper"},
		},
		"a directory that is hidden and made anew": {
			[]entries{{imagetest.File("d/old", "x")}, {imagetest.File("d/new", "y"), imagetest.File(".wh.d", "")}},
			map[string]string{"d": "drwxr-xr-x", "d/new": "-rw-r--r-- y"},
		},
		"opaque directories, wherever the mark is": {
			[]entries{
				{imagetest.File("d/old", "x"), imagetest.File("d/e/old", "x")},
				{imagetest.File("d/new", "y"), imagetest.File("d/e/new", "z"), imagetest.File("d/.wh..wh..opq", "")},
			},
			map[string]string{"d": "drwxr-xr-x", "d/new": "-rw-r--r-- y", "d/e": "drwxr-xr-x", "d/e/new": "-rw-r--r-- z"},
		},
		"hard links": {
			[]entries{{imagetest.File("a", "x"), imagetest.Link("b", "a"), imagetest.Link("b", "./b")}, {imagetest.File("a", "y")}},
			map[string]string{"a": "-rw-r--r-- y", "b": "-rw-r--r-- x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := apply(t.Context(), t, dir, c.layers...); err != nil {
				t.Fatal(err)
			}
			got := tree(t, dir)
			if !maps.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Files keep the owner, time and mode that the layer has, without set-user-id and
// set-group-id. Devices and pipes are not made.
func TestWhatAnEntryKeeps(t *testing.T) {
	dir := t.TempDir()
	owned := imagetest.File("owned", "x")
	high := min(int64(4_000_000_000), math.MaxInt) // on a processor of 32 bits archive/tar has none above that
	owned.Uid, owned.Gid, owned.Mode = 1234, int(high), 0o6755
	sticky := imagetest.Dir("sticky")
	sticky.Mode = 0o3777
	device := imagetest.Entry{Header: tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}
	pipe := imagetest.Entry{Header: tar.Header{Name: "pipe", Typeflag: tar.TypeFifo}}
	note := imagetest.Entry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}}
	if err := apply(t.Context(), t, dir, entries{note, owned, sticky, device, pipe}); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, "owned"), &st); err != nil || st.Uid != 1234 || int64(st.Gid) != high || st.Mode&0o7777 != 0o755 || st.Mtim.Sec != 0 {
		t.Errorf("file: %+v, %v", st, err)
	}
	if err := unix.Lstat(filepath.Join(dir, "sticky"), &st); err != nil || st.Mode&0o7777 != 0o1777 {
		t.Errorf("directory: %o, %v", st.Mode, err)
	}
	if got := slices.Sorted(maps.Keys(tree(t, dir))); !slices.Equal(got, []string{"owned", "sticky"}) {
		t.Errorf("got %q", got)
	}
}

// No layer can make, change, link to, remove or read anything outside the image.
//
// Attacks: C10.
func TestAttackLayersThatLeadOut(t *testing.T) {
	for name, attack := range attacks() {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			canary, dir := filepath.Join(top, "canary"), filepath.Join(top, "image")
			if err := errors.Join(os.MkdirAll(canary+"/sub", 0o700), os.WriteFile(canary+"/file", []byte("precious"), 0o600), os.Mkdir(dir, 0o755)); err != nil {
				t.Fatal(err)
			}
			var links unix.Stat_t
			before := tree(t, canary)
			err := apply(t.Context(), t, dir, attack(canary)...)
			if after := tree(t, canary); !maps.Equal(before, after) {
				t.Errorf("canary: %q, want %q as before (%v)", after, before, err)
			}
			if err := unix.Lstat(canary+"/file", &links); err != nil || links.Nlink != 1 {
				t.Errorf("canary: %d links, %v", links.Nlink, err)
			}
			if got, err := os.ReadDir(top); err != nil || len(got) != 2 {
				t.Errorf("beside the image: %v, %v", got, err)
			}
			for path, what := range tree(t, dir) {
				if strings.Contains(what, "precious") {
					t.Errorf("%s: the canary is in the image", path)
				}
			}
		})
	}
}

// attacks returns layers for a canary's path.
func attacks() map[string]func(canary string) []entries {
	one := func(e ...imagetest.Entry) func(string) []entries {
		return func(string) []entries { return []entries{e} }
	}
	through := func(more ...imagetest.Entry) func(string) []entries {
		return func(canary string) []entries {
			return []entries{{imagetest.Symlink("l", canary), imagetest.Symlink("r", "../canary"), imagetest.Symlink("f", canary+"/file"), imagetest.Symlink("p", "/proc/self/cwd")}, more}
		}
	}
	return map[string]func(string) []entries{
		"parent":                       one(imagetest.File("../canary/file", "owned")),
		"parent within":                one(imagetest.File("a/../../canary/file", "owned")),
		"parent at the end":            one(imagetest.Dir("a/..")),
		"absolute":                     func(c string) []entries { return []entries{{imagetest.File(c+"/file", "owned")}} },
		"file through a link":          through(imagetest.File("l/file", "owned")),
		"file through a relative link": through(imagetest.File("r/file", "owned")),
		"new file through a link":      through(imagetest.File("l/sub/new", "owned")),
		"file in place of a link":      through(imagetest.File("f", "owned")),
		"directory in place of a link": through(imagetest.Dir("l"), imagetest.File("l/file", "owned")),
		"mode through a link":          through(imagetest.Dir("l/sub")),
		"root in place":                one(imagetest.Symlink(".", "/")),
		"whiteout through a link":      through(imagetest.File("l/.wh.file", ""), imagetest.File("r/.wh.sub", "")),
		"opaque through a link":        through(imagetest.File("l/.wh..wh..opq", ""), imagetest.File("r/.wh..wh..opq", "")),
		"whiteout of the parent":       through(imagetest.File(".wh...", ""), imagetest.File("l/.wh...", "")),
		"whiteout of itself":           through(imagetest.File(".wh..", "")),
		"whiteout of no name":          through(imagetest.File(".wh.", "")),
		"whiteout of a link":           through(imagetest.File(".wh.l", ""), imagetest.File(".wh.f", "")),
		"hard link out":                one(imagetest.Link("h", "../canary/file")),
		"absolute hard link": func(c string) []entries {
			return []entries{{imagetest.Link("h", c+"/file"), imagetest.File("h", "owned")}}
		},
		"hard link through a link":       through(imagetest.Link("h", "l/file"), imagetest.File("h", "owned")),
		"hard link to a link":            through(imagetest.Link("h", "f"), imagetest.File("h", "owned")),
		"hard link to a directory":       through(imagetest.Link("h", "l")),
		"link made of a directory":       one(imagetest.Dir("d"), imagetest.File("d/x", "x"), imagetest.Symlink("d", "../canary"), imagetest.File("d/file", "owned")),
		"link to a link":                 through(imagetest.Symlink("l2", "l"), imagetest.Symlink("l3", "l2/sub"), imagetest.File("l3/new", "owned")),
		"kernel's link":                  through(imagetest.File("p/escape", "owned")),
		"as deep as one likes":           one(imagetest.File(strings.Repeat("d/", 300)+"f", "x")),
		"as long as one likes":           one(imagetest.File(strings.Repeat("x", 300), "x")),
		"a link that is a whole program": one(imagetest.Symlink("l", strings.Repeat("x", 5000))),
	}
}

// An entry that no layer may have is an error that says so.
func TestWhatIsNoLayer(t *testing.T) {
	negative := imagetest.File("a", "")
	negative.Uid = -1
	for what, e := range map[string]imagetest.Entry{
		"parent": imagetest.File("a/../b", ""), "whiteout": imagetest.File(".wh...", ""), "owner": negative,
		"depth": imagetest.File(strings.Repeat("d/", 300)+"f", ""), "root": imagetest.Symlink(".", "/"),
		"type": {Header: tar.Header{Name: "a", Typeflag: 'V'}}, "hard link": imagetest.Link("a", ""),
	} {
		if err := apply(t.Context(), t, t.TempDir(), entries{e}); !errors.Is(err, unpack.ErrLayer) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := apply(ended, t, t.TempDir(), entries{imagetest.File("a", "")}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: got %v", err)
	}
}

// An image that would fill the disk is refused before it does.
func TestImageThatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	var layer entries
	for i := range 4 {
		layer = append(layer, imagetest.File(fmt.Sprint(i), strings.Repeat("x", 250<<10)))
	}
	if err := apply(t.Context(), t, dir, layer); !errors.Is(err, unpack.ErrFull) {
		t.Errorf("got %v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Bavail == 0 {
		t.Errorf("%d blocks left, %v", st.Bavail, err)
	}
}

// A layer of a few bytes cannot make many directories, with or without entries for
// them.
//
// Attacks: C48.
func TestAttackDirectoriesThatNoEntrySays(t *testing.T) {
	var deep entries
	for i := range 1000 {
		deep = append(deep, imagetest.File(fmt.Sprintf("%d/%sf", i, strings.Repeat("d/", 250)), ""))
	}
	dir := t.TempDir()
	if err := apply(t.Context(), t, dir, deep); !errors.Is(err, unpack.ErrLayer) {
		t.Errorf("got %v, want ErrLayer", err)
	}
	if n := len(tree(t, dir)); n > 10_000 {
		t.Errorf("%d files and directories were made for 250000 directories that no entry says", n)
	}
	// An archive without entries for its directories is valid.
	var plain entries
	for i := range 2000 {
		plain = append(plain, imagetest.File(fmt.Sprintf("usr/share/doc/package-%d/licenses/copyright", i), "x"))
	}
	if err := apply(t.Context(), t, t.TempDir(), plain); err != nil {
		t.Errorf("an archive without directories: %v", err)
	}
}

// Directories and links count against the free space, too, and so does each inode.
//
// Attacks: C48.
func TestAttackEntriesThatTakeNoBytes(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		entry   func(i int) imagetest.Entry
	}{
		"blocks of directories": {"size=1m", func(i int) imagetest.Entry { return imagetest.Dir(fmt.Sprint(i)) }},
		"blocks of links":       {"size=1m", func(i int) imagetest.Entry { return imagetest.Symlink(fmt.Sprint(i), strings.Repeat("x", 1000)) }},
		"inodes":                {"size=64m,nr_inodes=300", func(i int) imagetest.Entry { return imagetest.File(fmt.Sprint(i), "") }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, c.options); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			var layer entries
			for i := range 400 {
				layer = append(layer, c.entry(i))
			}
			if err := apply(t.Context(), t, dir, layer); !errors.Is(err, unpack.ErrFull) {
				t.Errorf("got %v, want ErrFull", err)
			}
			if made := len(tree(t, dir)); made == 0 || made > 280 {
				t.Errorf("%d were made", made)
			}
		})
	}
}
