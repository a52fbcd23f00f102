package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// record is the record of a volume's disk, kept from the first Stage to the end of
// Unstage in a file next to the volume's stage path.
type record struct {
	// WWID identifies the disk.
	WWID string `json:"wwid"`
	// Making is true while a file system is being made on the disk, which was blank
	// before.
	Making bool `json:"making,omitempty"`
	// Made is true once the file system was made.
	Made bool `json:"made,omitempty"`
	// FileSystem is the type and UUID of the file system at its first mount.
	FileSystem string `json:"fileSystem,omitempty"`

	path string
}

func recordPath(stagePath string) string { return filepath.Join(filepath.Dir(stagePath), "disk.json") }

// readRecord reads the volume's record; ok is false if there is none.
func readRecord(stagePath string) (m record, ok bool, err error) {
	m.path = recordPath(stagePath)
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

// save writes the record durably.
func (m *record) save() error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return WriteFile(m.path, b)
}

// WriteFile replaces a file atomically and durably, with mode 0600.
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
