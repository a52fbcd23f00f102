package uninstall

import (
	"errors"

	"golang.org/x/sys/unix"
)

// removeDir removes an empty directory. A missing directory is no error.
func removeDir(path string) error {
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
