package payload

import (
	"context"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// link makes the links that readers use match the files' first path elements, and
// removes those of earlier sets. It leaves entries that are not ours alone.
func (s *set) link(ctx context.Context) error {
	tops := s.files.tops()
	for top := range tops {
		if s.held[top] && readlink(s.fd, top) == linkTo(top) {
			continue
		}
		if err := s.place(ctx, linkTo(top), top, linkTmp); err != nil {
			return err
		}
	}
	for name := range s.held {
		if tops[name] || strings.HasPrefix(name, reserved) || readlink(s.fd, name) != linkTo(name) {
			continue
		}
		if err := unix.Unlinkat(s.fd, name, 0); err != nil {
			return &os.PathError{Op: "unlink", Path: name, Err: err}
		}
	}
	return nil
}

func linkTo(top string) string { return current + "/" + top }
