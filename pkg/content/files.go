package content

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// defaultMode is what an API server fills in where defaultMode is left out; it
// is the same for all four kinds.
const defaultMode = uint32(corev1.ConfigMapVolumeSourceDefaultMode)

// ErrNoKey means that a volume names a key that its object does not have.
var ErrNoKey = errors.New("no such key")

// File is one file: its content and its permission bits (0 to 0777).
type File struct {
	Data []byte
	Mode uint32
	// Owner is the user whose it is; nil is root.
	Owner *int64
}

// Files is a set of files by path. Its paths are as Clean returns them.
type Files map[string]File

// Revision is a hash of the files' paths and contents, each with its length, so
// that no two sets of files share one. With a key, nobody who lacks the key can
// tell from it what the content is, by trying what it may be.
func (fs Files) Revision(key []byte) string {
	var h hash.Hash
	if h = sha256.New(); key != nil {
		h = hmac.New(sha256.New, key)
	}
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, path := range slices.Sorted(maps.Keys(fs)) {
		part([]byte(path))
		part(fs[path].Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// put adds a file under its clean path; one that is there is replaced.
func (fs Files) put(path string, file File) error {
	clean, err := Clean(path)
	if err != nil {
		return err
	}
	fs[clean] = file
	return nil
}

// check returns fs if it can be a volume.
func (fs Files) check() (Files, error) {
	if err := CheckPaths(slices.Sorted(maps.Keys(fs))); err != nil {
		return nil, err
	}
	return fs, nil
}

// selection is what a source says of the keys of one object.
type selection struct {
	items    []corev1.KeyToPath
	mode     uint32
	optional bool
}

func newSelection(items []corev1.KeyToPath, mode *int32, optional *bool) (selection, error) {
	m, err := modeOf(mode, defaultMode)
	if err != nil {
		return selection{}, fmt.Errorf("defaultMode: %w", err)
	}
	return selection{items: items, mode: m, optional: optional != nil && *optional}, nil
}

// of returns the files that are selected of data: all keys, or those of items
// under the paths they give. A key that is missing is an error unless the
// source is optional.
func (s selection) of(data map[string][]byte) (Files, error) {
	files := Files{}
	if len(s.items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if err := files.put(key, File{Data: data[key], Mode: s.mode}); err != nil {
				return nil, fmt.Errorf("key: %w", err)
			}
		}
		return files, nil
	}
	for i, item := range s.items {
		value, ok := data[item.Key]
		if !ok && s.optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("items[%d].key %.253q: %w; want it, or optional: true", i, item.Key, ErrNoKey)
		}
		mode, err := modeOf(item.Mode, s.mode)
		if err != nil {
			return nil, fmt.Errorf("items[%d].mode: %w", i, err)
		}
		if err := files.put(item.Path, File{Data: value, Mode: mode}); err != nil {
			return nil, fmt.Errorf("items[%d].path: %w", i, err)
		}
	}
	return files, nil
}

func modeOf(given *int32, otherwise uint32) (uint32, error) {
	if given == nil {
		return otherwise, nil
	}
	if *given < 0 || *given > 0o777 {
		return 0, fmt.Errorf("%#o is not in 0 to 0777", *given)
	}
	return uint32(*given), nil
}
