package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// Suffixes of files in the directory of secrets.
const (
	secretSuffix = ".json"
	tempSuffix   = ".tmp"
)

// secretFiles stores each secret in a file of its own. The file's name is a hash, since a secret's
// name may be too long for a file.
type secretFiles struct{ dir string }

// secretFile is the content of a secret's file.
type secretFile struct {
	Name   string          `json:"name"`
	Object json.RawMessage `json:"object"`
}

// open opens the directory, creating it if necessary, and makes it accessible to root only.
func (s secretFiles) open() (*os.Root, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	if err := root.Chmod(".", 0o700); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// load returns all secrets by name, and why a file cannot be read, by the file's name. It removes the
// temporary files that a crash left behind.
func (s secretFiles) load() (values map[string][]byte, unreadable map[string]error, err error) {
	values, unreadable = map[string][]byte{}, map[string]error{}
	if s.dir == "" {
		return values, unreadable, nil
	}
	root, err := s.open()
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), tempSuffix) {
			if err := root.Remove(e.Name()); err != nil {
				return nil, nil, err
			}
			continue
		}
		if !strings.HasSuffix(e.Name(), secretSuffix) {
			continue
		}
		f, err := s.read(root, e.Name())
		if err != nil {
			unreadable[e.Name()] = err
			continue
		}
		values[f.Name] = f.Object
	}
	return values, unreadable, nil
}

// read reads one secret's file.
func (s secretFiles) read(root *os.Root, file string) (f secretFile, err error) {
	b, err := root.ReadFile(file)
	if err != nil {
		return f, fmt.Errorf("%s: %w", s.dir, err)
	}
	if json.Unmarshal(b, &f) != nil || fileName(f.Name) != file {
		// The error's text could contain a piece of the secret.
		return f, fmt.Errorf("%s/%s: damaged, or not a secret stored by csi-volmgr", s.dir, file)
	}
	return f, nil
}

// write makes the secret durable; a nil value removes it. The error names the file.
func (s secretFiles) write(name string, value []byte) error {
	if s.dir == "" {
		return nil
	}
	file := fileName(name)
	if err := s.store(file, name, value); err != nil {
		return &fs.PathError{Op: "store", Path: filepath.Join(s.dir, file), Err: err}
	}
	return nil
}

func (s secretFiles) store(file, name string, value []byte) error {
	root, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if value == nil {
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncDir(root)
	}
	b, err := json.Marshal(secretFile{Name: name, Object: value})
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := writeSynced(root, file+tempSuffix, b); err != nil {
		return err
	}
	if err := root.Rename(file+tempSuffix, file); err != nil {
		return err
	}
	return syncDir(root)
}

// fileKey returns the key under which the file of the secret with this key is listed if it cannot be
// read: then the secret's own key is not known.
func fileKey(k source.Key) source.Key {
	return source.Key{Kind: resolve.KindSecret, Name: fileName(nameOf(k))}
}

func fileName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:]) + secretSuffix
}

// writeSynced writes a new file and syncs it.
func writeSynced(root *os.Root, name string, b []byte) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
