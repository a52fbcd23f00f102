package csiclient

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// makeDir starts from whichever parent exists, also through a link that stays beneath the
// root, and never through one that leads out of it.
func TestDirectoriesAreMadeFromWhatThereIs(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	d, err := openDirs(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	for _, err := range []error{
		os.MkdirAll(root+"/pods/old/volumes/csi/pv", 0o700), os.WriteFile(root+"/pods/file", nil, 0o600),
		os.Symlink("old", root+"/pods/alias"), os.Symlink(outside, root+"/pods/out"), os.Symlink(outside, root+"/pods/old/out"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		"top/mount": true, "pods/old/volumes/csi/pv/mount": true, "pods/old/volumes/csi/pv2/mount": true,
		"pods/old/volumes/other/pv/mount": true, "pods/new/volumes/csi/pv/mount": true, "new/a/b/c/mount": true,
		"pods/alias/subdir/a/b/mount": true,
		"pods/file/a/b/mount":         false, "pods/out/a/mount": false, "pods/out/a/b/c/mount": false, "pods/old/out/a/b/mount": false,
		"pods/file/mount": false,
	} {
		for name, f := range map[string]func(string) error{
			"room": func(p string) error { return d.makeRoom(p, state.Filesystem) }, "parent": d.makeParent, "dir": d.makeDir,
		} {
			err := f(filepath.Join(root, path))
			info, statErr := os.Stat(filepath.Join(root, filepath.Dir(path)))
			if (err == nil) != want || want && (statErr != nil || !info.IsDir()) {
				t.Errorf("%s for %s: %v, its directory: %v, want it to be made: %t", name, path, err, statErr, want)
			}
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside of the root: %v, %v", left, err)
	}
}

// Removing the empty directories above one target makes no call for another target fail.
func TestDirectoriesAreMadeWhileOthersRemoveThem(t *testing.T) {
	root := t.TempDir()
	d, err := openDirs(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			path := filepath.Join(root, "pods/x/volumes/csi", name, "mount")
			for range 500 {
				if err := d.makeRoom(path, state.Filesystem); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := d.makeDir(path); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if gone, err := d.clearUp(path, state.Filesystem); !gone || err != nil {
					t.Errorf("%s: %t, %v", name, gone, err)
				}
			}
		})
	}
	all.Wait()
}

// Clearing up after a pod's last volume removes directories until it meets one that is in
// use or directly in the root; through a link, only those beneath the root.
func TestDirectoriesThatAreEmptyGo(t *testing.T) {
	for name, tc := range map[string]struct {
		make, links []string // name, target of each link
		clear       string
		gone        bool
		left        []string
	}{
		"all": {
			make:  []string{"pods/u/volumes/csi/pv/mount"},
			clear: "pods/u/volumes/csi/pv/mount", gone: true, left: []string{"pods"},
		},
		"the driver removed the target": {
			make:  []string{"pods/u/volumes/csi/pv"},
			clear: "pods/u/volumes/csi/pv/mount", gone: true, left: []string{"pods"},
		},
		"the driver removed more": {
			make:  []string{"pods/u/volumes/csi"},
			clear: "pods/u/volumes/csi/pv/mount", gone: true, left: []string{"pods"},
		},
		"another volume of the pod": {
			make:  []string{"pods/u/volumes/csi/pv/mount", "pods/u/volumes/csi/pv2"},
			clear: "pods/u/volumes/csi/pv/mount", gone: true, left: []string{"pods", "pods/u", "pods/u/volumes", "pods/u/volumes/csi", "pods/u/volumes/csi/pv2"},
		},
		"another kind of volume": {
			make:  []string{"pods/u/volumes/csi/pv/mount", "pods/u/volumes/files"},
			clear: "pods/u/volumes/csi/pv/mount", gone: true, left: []string{"pods", "pods/u", "pods/u/volumes", "pods/u/volumes/files"},
		},
		"something at the target": {
			make:  []string{"pods/u/a/b/mount/data"},
			clear: "pods/u/a/b/mount", left: []string{"pods", "pods/u", "pods/u/a", "pods/u/a/b", "pods/u/a/b/mount", "pods/u/a/b/mount/data"},
		},
		"near the root": {
			make:  []string{"csi/d/mount"},
			clear: "csi/d/mount", gone: true, left: []string{"csi"},
		},
		"a link within the root": {
			make: []string{"pods/u/a", "other/pv/mount"}, links: []string{"pods/u/a/csi", "../../../other"},
			clear: "pods/u/a/csi/pv/mount", gone: true, left: []string{"other", "pods", "pods/u", "pods/u/a", "pods/u/a/csi"},
		},
		"a link out of the root": {
			make: []string{"pods/u/a"}, links: []string{"pods/u/a/csi", "OUTSIDE"},
			clear: "pods/u/a/csi/pv/mount", left: []string{"pods", "pods/u", "pods/u/a", "pods/u/a/csi"},
		},
	} {
		root, outside := t.TempDir(), t.TempDir()
		must(t, os.MkdirAll(outside+"/pv/mount", 0o700))
		for _, dir := range tc.make {
			must(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
		}
		if len(tc.links) > 0 {
			must(t, os.Symlink(strings.Replace(tc.links[1], "OUTSIDE", outside, 1), filepath.Join(root, tc.links[0])))
		}
		d, err := openDirs(root)
		must(t, err)
		if gone, _ := d.clearUp(filepath.Join(root, tc.clear), state.Filesystem); gone != tc.gone {
			t.Errorf("%s: gone: %t", name, gone)
		}
		var left []string
		must(t, fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
			if path != "." {
				left = append(left, path)
			}
			return err
		}))
		if !slices.Equal(left, tc.left) {
			t.Errorf("%s: left %v, want %v", name, left, tc.left)
		}
		if _, err := os.Stat(outside + "/pv/mount"); err != nil {
			t.Errorf("%s: outside of the root: %v", name, err)
		}
		must(t, d.close())
	}
}

// A call that outlasts its driver, as one on dead storage does, uses the root directory or
// nothing, and never the file that got its descriptor's number since: the race detector
// would see that.
func TestACallMayOutlastItsDirectories(t *testing.T) {
	root := t.TempDir()
	d, err := openDirs(root)
	if err != nil {
		t.Fatal(err)
	}
	looked, ended := make(chan struct{}), make(chan error)
	go func() {
		err := d.makeDir(filepath.Join(root, "a"))
		close(looked)
		for err == nil {
			_, err = d.look("a/b")
		}
		ended <- err
	}()
	<-looked
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after its driver was closed a call got %v, want that the root is closed", err)
	}
}
