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

// defaultMode is the defaultMode that an API server fills in. It is the same for all four kinds.
const defaultMode = uint32(corev1.ConfigMapVolumeSourceDefaultMode)

// ErrNoKey means that a volume names a key that its object does not have.
var ErrNoKey = errors.New("no such key")

// File is the content and the permission bits (0 to 0777) of one file.
type File struct {
	Data []byte
	Mode uint32
	// Owner is the uid of the file's owner; nil means root.
	Owner *int64
}

// Files maps paths, as returned by Clean, to files.
type Files map[string]File

// Revision returns a hash of the files' paths and contents. The length of each is part of the hash,
// so that two different sets of files never produce the same input. With a key, the hash does not
// let readers without the key confirm a guess of the content.
func (fs Files) Revision(key []byte) string {
	var h hash.Hash
	if h = sha256.New(); key != nil {
		h = hmac.New(sha256.New, key)
	}
	var buf []byte // collects short data into one write
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

// put adds a file under its clean path, replacing an existing one.
func (fs Files) put(path string, file File) error {
	clean, err := Clean(path)
	if err != nil {
		return err
	}
	fs[clean] = file
	return nil
}

// check returns fs if the paths are valid in one volume.
func (fs Files) check() (Files, error) {
	if err := CheckPaths(slices.Sorted(maps.Keys(fs))); err != nil {
		return nil, err
	}
	return fs, nil
}

// selection is what a source selects of an object's keys.
type selection struct {
	items    []corev1.KeyToPath
	defaults defaults
	optional bool
}

func newSelection(items []corev1.KeyToPath, d defaults, optional *bool) selection {
	return selection{items: items, defaults: d, optional: optional != nil && *optional}
}

// defaults are the permission bits and the owner (nil means root) of files whose item does not set
// them.
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

// file returns an item's file; mode and user may be nil.
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

// checkUser checks a uid as the API server does.
func checkUser(user *int64) error {
	if user != nil && (*user < 0 || *user > math.MaxInt32) {
		return fmt.Errorf("found %d, want a user id of 0 to %d", *user, math.MaxInt32)
	}
	return nil
}

// object holds the keys of one object: a configMap's text keys, and all binary keys. If a key is in
// both, the text is used.
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

// keys returns the sorted keys.
func (o object) keys() []string {
	keys := make([]string, 0, len(o.text)+len(o.binary))
	keys = slices.AppendSeq(keys, maps.Keys(o.text))
	keys = slices.AppendSeq(keys, maps.Keys(o.binary))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// files returns the selected files of the named object, after a look-up that found it or returned err.
func (s selection) files(name string, o object, found bool, err error) (Files, error) {
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", name, err)
	}
	if !found && !s.optional {
		return nil, fmt.Errorf("%s: %w; want it, or optional: true", name, ErrNotFound)
	}
	files, err := s.pick(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return files, nil
}

// pick returns the selected files of an object: all keys, or the keys of items under their paths. A
// missing key is an error unless the source is optional.
func (s selection) pick(o object) (Files, error) {
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
