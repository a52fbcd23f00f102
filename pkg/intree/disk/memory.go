package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// memory is what is remembered of a volume's disk from the first Stage to the
// end of Unstage, in a file of its own beside the place of its mount.
type memory struct {
	// WWID is the disk's.
	WWID string `json:"wwid"`
	// Making: a file system is being made on it. It was blank before.
	Making bool `json:"making,omitempty"`
	// Made: the file system was made here.
	Made bool `json:"made,omitempty"`
	// FileSystem is its kind and UUID, as it was when it was mounted first.
	FileSystem string `json:"fileSystem,omitempty"`

	path string
}

func memoryPath(stagePath string) string { return filepath.Join(filepath.Dir(stagePath), "disk.json") }

// recall returns what is remembered; ok is false where nothing is.
func recall(stagePath string) (m memory, ok bool, err error) {
	m.path = memoryPath(stagePath)
	b, err := os.ReadFile(m.path)
	if errors.Is(err, os.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, false, fmt.Errorf("%s: %w", m.path, err)
	}
	return m, true, nil
}

// save makes what is remembered durable.
func (m *memory) save() error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return WriteFile(m.path, b)
}

// WriteFile replaces a file whole and durably; only root may read it.
func WriteFile(path string, content []byte) error {
	unfinished := path + ".new"
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
