package content

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"math"
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
// that no two sets of files share one. With a key, no reader without the key can
// tell from it what the content is, by trying what it may be.
func (fs Files) Revision(key []byte) string {
	var h hash.Hash
	if h = sha256.New(); key != nil {
		h = hmac.New(sha256.New, key)
	}
	var buf []byte // of one write for what is short
	for _, path := range slices.Sorted(maps.Keys(fs)) {
		data := fs[path].Data
		buf = binary.BigEndian.AppendUint64(buf[:0], uint64(len(path)))
		buf = append(buf, path...)
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(data)))
		h.Write(buf)
		h.Write(data)
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
	defaults defaults
	optional bool
}

func newSelection(items []corev1.KeyToPath, d defaults, optional *bool) selection {
	return selection{items: items, defaults: d, optional: optional != nil && *optional}
}

// defaults are what files have whose item does not say otherwise: permission bits, and
// the user that owns them (nil for root).
type defaults struct {
	mode uint32
	user *int64
}

func newDefaults(mode *int32, user *int64) (defaults, error) {
	m, err := modeOf(mode, defaultMode)
	if err != nil {
		return defaults{}, fmt.Errorf("defaultMode: %w", err)
	}
	if err := checkUser(user); err != nil {
		return defaults{}, fmt.Errorf("defaultUser: %w", err)
	}
	return defaults{m, user}, nil
}

// file returns a file of an item, whose mode and user may be nil.
func (d defaults) file(data []byte, mode *int32, user *int64) (File, error) {
	m, err := modeOf(mode, d.mode)
	if err != nil {
		return File{}, fmt.Errorf("mode: %w", err)
	}
	if err := checkUser(user); err != nil {
		return File{}, fmt.Errorf("user: %w", err)
	}
	return File{Data: data, Mode: m, Owner: cmp.Or(user, d.user)}, nil
}

// checkUser: as the API server does.
func checkUser(user *int64) error {
	if user != nil && (*user < 0 || *user > math.MaxInt32) {
		return fmt.Errorf("found %d, want a user id of 0 to %d", *user, math.MaxInt32)
	}
	return nil
}

// object is the keys of one object: those of a configMap that are text, and the
// others. Of one that is both, the text counts.
type object struct {
	text   map[string]string
	binary map[string][]byte
}

func (o object) get(key string) (value []byte, ok bool) {
	if text, ok := o.text[key]; ok {
		return []byte(text), true
	}
	value, ok = o.binary[key]
	return value, ok
}

// keys are in order.
func (o object) keys() []string {
	keys := make([]string, 0, len(o.text)+len(o.binary))
	keys = slices.AppendSeq(keys, maps.Keys(o.text))
	keys = slices.AppendSeq(keys, maps.Keys(o.binary))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// of returns the files that are selected of an object: all keys, or those of
// items under the paths they give. A key that is missing is an error unless the
// source is optional.
func (s selection) of(o object) (Files, error) {
	files := Files{}
	if len(s.items) == 0 {
		for _, key := range o.keys() {
			value, _ := o.get(key)
			if err := files.put(key, File{Data: value, Mode: s.defaults.mode, Owner: s.defaults.user}); err != nil {
				return nil, fmt.Errorf("key: %w", err)
			}
		}
		return files, nil
	}
	for i, item := range s.items {
		value, ok := o.get(item.Key)
		if !ok && s.optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("items[%d].key %.253q: %w; want it, or optional: true", i, item.Key, ErrNoKey)
		}
		file, err := s.defaults.file(value, item.Mode, item.User)
		if err != nil {
			return nil, fmt.Errorf("items[%d].%w", i, err)
		}
		if err := files.put(item.Path, file); err != nil {
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
