package file

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// bucket is the journal's bucket for the last good objects.
const bucket = "manifests"

// dirKey is the key for the state of the directory; no file can have that name.
const dirKey = "/"

// memory stores the last good objects of each file, without secrets.
type memory struct {
	kv KV
	// mounted means that the directory was a mount point when it was last read.
	mounted bool
	// touched holds the files that changed since they were stored.
	touched map[string]bool
	// stored holds a hash of each file's stored value.
	stored map[string][sha256.Size]byte
}

// dirState is the value under dirKey.
type dirState struct {
	Mounted bool `json:"mounted"`
}

// load returns the stored objects of each file, and the errors of the files whose objects cannot be
// read.
func (m *memory) load(ctx context.Context) (files map[string]map[source.Key]runtime.Object, lost map[string]error,
	err error,
) {
	m.touched, m.stored = map[string]bool{}, map[string][sha256.Size]byte{}
	if m.kv == nil {
		return nil, nil, nil
	}
	values, err := m.kv.LoadBucket(ctx, bucket)
	if err != nil {
		return nil, nil, err
	}
	files, lost = map[string]map[source.Key]runtime.Object{}, map[string]error{}
	for name, why := range values.Unreadable {
		if name == dirKey {
			m.mounted = true // so that an empty directory proves nothing
			continue
		}
		lost[name] = errors.New(why)
	}
	for name, value := range values.Sound {
		m.stored[name] = sha256.Sum256(value)
		if name == dirKey {
			var k dirState
			if err := json.Unmarshal(value, &k); err != nil {
				return nil, nil, fmt.Errorf("decode the stored state of the directory: %w", err)
			}
			m.mounted = k.Mounted
			continue
		}
		if files[name], err = m.read(name, value); err != nil {
			delete(files, name)
			lost[name] = err
		}
	}
	return files, lost, nil
}

func (m *memory) read(name string, value []byte) (map[source.Key]runtime.Object, error) {
	objects, err := manifest.Reload(name, value)
	if err != nil {
		return nil, err
	}
	return byKey(objects)
}

// byKey maps objects by their keys.
func byKey(objects []runtime.Object) (map[source.Key]runtime.Object, error) {
	all := make(map[source.Key]runtime.Object, len(objects))
	for _, obj := range objects {
		key, err := resolve.KeyOf(obj)
		if err != nil {
			return nil, err
		}
		all[key] = obj
	}
	return all, nil
}

// setMounted stores whether the directory is a mount point.
func (m *memory) setMounted(ctx context.Context, mounted bool) error {
	if m.mounted == mounted {
		return nil
	}
	if m.kv != nil {
		b, err := json.Marshal(dirState{Mounted: mounted})
		if err != nil {
			return err
		}
		if err := m.kv.CommitBucket(ctx, bucket, map[string][]byte{dirKey: b}); err != nil {
			return fmt.Errorf("remember the directory: %w", err)
		}
	}
	m.mounted = mounted
	return nil
}

// touch notes that the file's objects changed.
func (m *memory) touch(file string) { m.touched[file] = true }

// list is the stored form of a file's objects.
type list struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

// store makes the objects of the touched files durable if they differ from what is stored.
func (m *memory) store(ctx context.Context, files map[string]*entry) error {
	if m.kv == nil || len(m.touched) == 0 {
		return nil
	}
	changes := map[string][]byte{}
	for name := range m.touched {
		e := files[name]
		if e == nil {
			changes[name] = nil
			continue
		}
		b, err := encode(name, e.objects)
		if err != nil {
			return err
		}
		if m.stored[name] != sha256.Sum256(b) {
			changes[name] = b
		}
	}
	if len(changes) > 0 {
		if err := m.kv.CommitBucket(ctx, bucket, changes); err != nil {
			return err
		}
	}
	for name, b := range changes {
		if b == nil {
			delete(m.stored, name)
		} else {
			m.stored[name] = sha256.Sum256(b)
		}
	}
	clear(m.touched)
	return nil
}

// encode returns the stored form of a file's objects, which omits secrets.
func encode(name string, objects map[source.Key]runtime.Object) ([]byte, error) {
	l := list{APIVersion: "v1", Kind: "List", Items: []json.RawMessage{}}
	for _, key := range slices.SortedFunc(maps.Keys(objects), source.Key.Compare) {
		if key.Kind == resolve.KindSecret {
			continue
		}
		b, err := manifest.Encode(objects[key])
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, b)
	}
	b, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	return b, nil
}
