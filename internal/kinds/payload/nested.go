package payload

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// split sorts the directories to mount on into those inside the set and those outside.
// It skips a path at which the set has a file, since the runtime then mounts on that
// file.
func (s *set) split(dirs []string) {
	tops := s.files.tops()
	for _, d := range dirs {
		if s.isFile(d) {
			continue
		}
		if top, _, _ := strings.Cut(d, "/"); tops[top] {
			s.inner = append(s.inner, d)
		} else if !strings.HasPrefix(top, reserved) {
			s.outer = append(s.outer, d)
		}
	}
}

// isFile reports whether d or a directory above it is a file of the set.
func (s *set) isFile(d string) bool {
	for ; d != "."; d = path.Dir(d) {
		if _, ok := s.files[d]; ok {
			return true
		}
	}
	return false
}

// dirs returns all directories of the set, parents first.
func (s *set) dirs() []string {
	need := s.files.dirs()
	for _, d := range s.inner {
		for ; d != "."; d = path.Dir(d) {
			need = append(need, d)
		}
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// makeDirs makes the directories outside the set, keeping those that exist.
func (s *set) makeDirs() error {
	for _, d := range s.outer {
		at := "."
		for elem := range strings.SplitSeq(d, "/") {
			at = path.Join(at, elem)
			if err := mkdir(s.fd, at); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("make the mount point of another volume: %w", err)
			}
		}
		fd, err := openDir(s.fd, d)
		if err != nil {
			return fmt.Errorf("open the mount point of another volume: %w", err)
		}
		unix.Close(fd)
	}
	return nil
}
