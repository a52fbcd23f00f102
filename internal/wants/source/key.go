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

// keyFile is a file in the runtime directory. It holds the key for hashing secret contents into
// revisions.
const keyFile = "revision.key"

// RevisionKey returns the key that the first daemon of this boot drew, and draws one if there is
// none. If dir is "", the key lives only in this process.
func RevisionKey(dir string) ([]byte, error) {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
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
	// The file is new, or a crash cut off the writing of the key.
	if _, err := f.WriteAt(key, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return key, nil
}
