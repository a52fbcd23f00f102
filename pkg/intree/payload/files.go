package payload

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Limits of the kernel on a path, in bytes.
const (
	maxPath = 4096
	maxName = 255
)

// reserved is how names that only the layout may use begin.
const reserved = ".."

// ErrPath means that a path must not be used for a file of a volume.
var ErrPath = errors.New("not a path within a volume")

// File is one file: its content and its permission bits (0 to 0777).
type File struct {
	Data []byte
	Mode fs.FileMode
}

// Files is a set of files by path. A path is as Clean returned it.
type Files map[string]File

// Clean returns p in its shortest form, or an error that wraps ErrPath: a path
// is relative, has no "..", begins with no "..", and fits the kernel's limits.
func Clean(p string) (string, error) {
	switch c := path.Clean(p); {
	case p == "" || c == ".":
		return "", pathError(p, "is empty")
	case len(p) > maxPath:
		return "", pathError(p, fmt.Sprintf("is longer than %d bytes", maxPath))
	case path.IsAbs(p):
		return "", pathError(p, "is absolute")
	case strings.ContainsRune(p, 0):
		return "", pathError(p, "contains a NUL")
	case slices.Contains(strings.Split(p, "/"), ".."):
		return "", pathError(p, `contains ".."`)
	case strings.HasPrefix(c, reserved):
		return "", pathError(p, `begins with ".."`)
	case slices.ContainsFunc(strings.Split(c, "/"), func(s string) bool { return len(s) > maxName }):
		return "", pathError(p, fmt.Sprintf("has a name longer than %d bytes", maxName))
	default:
		return c, nil
	}
}

func pathError(p, why string) error {
	const shown = 64
	if len(p) > shown {
		p = p[:shown] + "…"
	}
	return fmt.Errorf("path %q %s: %w", p, why, ErrPath)
}

// check returns an error unless the set can be written as it is.
func (fs Files) check() error {
	for _, p := range fs.paths() {
		c, err := Clean(p)
		if err != nil {
			return err
		}
		if c != p {
			return fmt.Errorf("path %q is not in its shortest form: %w", p, ErrPath)
		}
		if mode := fs[p].Mode; mode&^0o777 != 0 {
			return fmt.Errorf("mode of %q: %#o is not in 0 to 0777", p, uint32(mode))
		}
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			if _, ok := fs[d]; ok {
				return fmt.Errorf("path %q is to be a file and the directory of %q: %w", d, p, ErrPath)
			}
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

// tops returns the names that a reader finds in the volume.
func (fs Files) tops() map[string]bool {
	tops := map[string]bool{}
	for p := range fs {
		top, _, _ := strings.Cut(p, "/")
		tops[top] = true
	}
	return tops
}
