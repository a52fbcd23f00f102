package source

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// keyFile holds the key of the revisions of what is secret, in the runtime directory.
const keyFile = "revision.key"

// RevisionKey returns the key that was drawn when the first daemon of this boot
// started. dir "" keeps it in this process only.
func RevisionKey(dir string) ([]byte, error) {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // which never fails
	if dir == "" {
		return key, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, keyFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Chmod(0o600); err != nil {
		return nil, err
	}
	old := make([]byte, len(key))
	if n, err := f.ReadAt(old, 0); err == nil && n == len(old) {
		return old, nil
	}
	// None, or the beginning of one that a crash cut off.
	if _, err := f.WriteAt(key, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return key, nil
}
