package content

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// The kernel's limits on paths, in bytes.
const (
	maxPath = 4096
	maxName = 255
)

// reserved is the prefix of names that only the volume's own layout may use.
const reserved = ".."

// ErrPath means that a volume cannot have a file at a path.
var ErrPath = errors.New("not a path within a volume")

// Clean returns p in its shortest form. It returns an error that wraps ErrPath unless p is
// relative, contains no "..", does not begin with "..", and is within the kernel's limits.
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
	case hasElement(p, func(elem string) bool { return elem == ".." }):
		return "", pathError(p, `contains ".."`)
	case strings.HasPrefix(c, reserved):
		return "", pathError(p, `begins with ".."`)
	case hasElement(c, func(elem string) bool { return len(elem) > maxName }):
		return "", pathError(p, fmt.Sprintf("has a name longer than %d bytes", maxName))
	default:
		return c, nil
	}
}

func hasElement(p string, is func(elem string) bool) bool {
	for elem := range strings.SplitSeq(p, "/") {
		if is(elem) {
			return true
		}
	}
	return false
}

func pathError(p, why string) error {
	const shown = 64
	if len(p) > shown {
		p = p[:shown] + "…"
	}
	return fmt.Errorf("path %q %s: %w", p, why, ErrPath)
}

// CheckPaths returns an error that wraps ErrPath unless each path is in the form that Clean
// returns, and none is both a file and a directory of another.
func CheckPaths(paths []string) error {
	var files map[string]bool // created for the first path that has a directory
	for _, p := range paths {
		c, err := Clean(p)
		if err != nil {
			return err
		}
		if c != p {
			return fmt.Errorf("path %q is not in its shortest form: %w", p, ErrPath)
		}
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			if files == nil {
				files = make(map[string]bool, len(paths))
				for _, p := range paths {
					files[p] = true
				}
			}
			if files[d] {
				return fmt.Errorf("path %q cannot be both a file and the directory of %q: %w", d, p, ErrPath)
			}
		}
	}
	return nil
}
