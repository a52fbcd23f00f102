package payload

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

// reserved is the prefix of names that only the layout may use.
const reserved = ".."

// File is one file: its content and its permission bits (0 to 0777).
type File struct {
	Data []byte
	Mode fs.FileMode
	// Owner is the owner's user ID; nil means root.
	Owner *int64
}

// Files is a set of files by path. Paths have the form that [content.Clean] returns.
type Files map[string]File

// check returns an error if the set cannot be written. paths are the set's paths. An
// error about a path wraps content.ErrPath.
func (fs Files) check(paths []string) error {
	if err := content.CheckPaths(paths); err != nil {
		return err
	}
	for _, p := range paths {
		if mode := fs[p].Mode; mode&^0o777 != 0 {
			return fmt.Errorf("mode of %q: %#o is not in 0 to 0777", p, uint32(mode))
		}
	}
	return nil
}

func (fs Files) paths() []string { return slices.Sorted(maps.Keys(fs)) }

// dirs returns the directories that the files need, parents first.
func (fs Files) dirs() []string {
	need := map[string]bool{}
	for p := range fs {
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			need[d] = true
		}
	}
	return slices.Sorted(maps.Keys(need))
}

// tops returns the set's first path elements: the names that a reader finds in the
// volume.
func (fs Files) tops() map[string]bool {
	tops := map[string]bool{}
	for p := range fs {
		top, _, _ := strings.Cut(p, "/")
		tops[top] = true
	}
	return tops
}
