package uninstall

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// removeDir removes an empty directory. A missing directory is no error.
func removeDir(path string) error {
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// readDir lists a directory. A missing one is empty.
func readDir(path string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}
