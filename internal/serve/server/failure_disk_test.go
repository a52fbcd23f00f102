package server

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"
)

// An answer about a file that could not be written ends with the command that shows its disk.
func TestAnAnswerNamesTheCommandThatShowsTheDisk(t *testing.T) {
	const dir = "/var/lib/x"
	about := func(cause error) error {
		return fmt.Errorf("drain: %w", &fs.PathError{Op: "write", Path: dir + "/audit.log", Err: cause})
	}
	for cause, want := range map[error]string{
		unix.ENOSPC:             "; make room, and look with: df -h " + dir,
		unix.EDQUOT:             "; make room, and look with: df -h " + dir,
		unix.EROFS:              "; make it writable, and look with: findmnt -T " + dir,
		unix.EACCES:             "",
		errors.New("no number"): "",
	} {
		if got := failure(about(cause)).Message; got != about(cause).Error()+want {
			t.Errorf("%v: got %q", cause, got)
		}
	}
	if got := failure(&fs.PathError{Op: "openat", Path: "relative", Err: unix.ENOSPC}).Message; got != "openat relative: no space left on device" {
		t.Errorf("a relative path: %q", got)
	}
}
