package localdriver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// errUnreadable means that a record exists but cannot be parsed. The driver does not touch such a
// volume, because any change might lose its data.
var errUnreadable = errors.New("its record cannot be read")

// store keeps the records on disk and a copy in memory. The callers' locks ensure that one call at
// a time writes the records of an id. The mutex guards the maps and is never held during a disk
// write.
type store struct {
	dir    string
	bootID string

	mu        sync.RWMutex
	volumes   map[string]volume     // by id
	snapshots map[string]snapshot   // by id; includes the members of groups
	groups    map[string]group      // by id
	attached  map[string]attachment // by volume id
	broken    map[string]error      // by file key
}

// The directories of a store.
const (
	recordsDir   = "records"
	snapshotsDir = "snapshots"
	groupsDir    = "groups"
	attachedDir  = "attached"
	dataDir      = "data"
)

// openStore makes the directories below dir and reads the records. It keeps a note of unreadable
// ones and logs them.
func openStore(dir, bootID string, log *slog.Logger) (*store, error) {
	s := &store{
		dir: dir, bootID: bootID,
		volumes: map[string]volume{}, snapshots: map[string]snapshot{}, groups: map[string]group{},
		attached: map[string]attachment{}, broken: map[string]error{},
	}
	for _, sub := range []string{recordsDir, snapshotsDir, groupsDir, attachedDir, dataDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make state directory: %w", err)
		}
	}
	err := errors.Join(
		load(s, recordsDir, func(v volume) { s.volumes[v.ID] = v }),
		load(s, snapshotsDir, func(n snapshot) { s.snapshots[n.ID] = n }),
		load(s, groupsDir, s.setGroup),
		load(s, attachedDir, func(a attachment) {
			if a.BootID == bootID {
				s.attached[a.ID] = a
			}
		}),
	)
	for _, key := range slices.Sorted(maps.Keys(s.broken)) {
		log.Error("record unreadable, volume left alone", "volume", key, "err", s.broken[key])
	}
	return s, err
}

// load decodes every record in sub and passes it to keep. It adds the unreadable ones to s.broken
// and removes the unfinished writes of a killed driver.
func load[T record](s *store, sub string, keep func(T)) error {
	dir := filepath.Join(s.dir, sub)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list records: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		key, isRecord := strings.CutSuffix(e.Name(), ".json")
		if !isRecord {
			if strings.HasSuffix(e.Name(), ".tmp") {
				err = errors.Join(err, os.Remove(path))
			}
			continue
		}
		r, bad := decode[T](path, key)
		switch {
		case bad == nil:
			keep(r)
		case sub != attachedDir:
			// An attachment is not synced: after a power failure it may be damaged, and is void
			// anyway.
			s.broken[key] = bad
		}
	}
	return err
}

// decode reads the record at path; key is its file key.
func decode[T record](path, key string) (T, error) {
	var r T
	b, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("decode %s: %w", path, err)
	}
	id, version := r.header()
	switch {
	case version != recordVersion:
		return r, fmt.Errorf("decode %s: version %d, want %d", path, version, recordVersion)
	case fileKey(id) != key:
		return r, fmt.Errorf("decode %s: holds the record of %q", path, id)
	case !r.valid():
		return r, fmt.Errorf("decode %s: a type or phase is none of this driver's", path)
	}
	return r, nil
}

// volume returns the record of id. The error is errUnreadable if the record cannot be read.
func (s *store) volume(id string) (volume, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err, bad := s.broken[fileKey(id)]; bad {
		return volume{}, false, fmt.Errorf("volume %s: %w: %w", id, errUnreadable, err)
	}
	v, ok := s.volumes[id]
	return v, ok, nil
}

// volumeNamed returns the volume with the given CreateVolume name.
func (s *store) volumeNamed(name string) (volume, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, v := range s.volumes {
		if v.Name == name && !v.Ephemeral {
			return v, true, nil
		}
	}
	return volume{}, false, s.brokenNamed("lv", name)
}

// snapshot returns the record of id.
func (s *store) snapshot(id string) (snapshot, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err, bad := s.broken[fileKey(id)]; bad {
		return snapshot{}, false, fmt.Errorf("snapshot %s: %w: %w", id, errUnreadable, err)
	}
	n, ok := s.snapshots[id]
	if !ok {
		return n, false, s.brokenMember(id)
	}
	return n, true, nil
}

// snapshotNamed returns the snapshot with the given CreateSnapshot name.
func (s *store) snapshotNamed(name string) (snapshot, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, n := range s.snapshots {
		if n.Name == name {
			return n, true, nil
		}
	}
	return snapshot{}, false, s.brokenNamed("snap", name)
}

// brokenNamed reports an unreadable record that may belong to name, so that no second, empty volume
// is made in its place. The caller holds s.mu.
func (s *store) brokenNamed(kind, name string) error {
	prefix := kind + "-" + nameHash(name) + "-"
	for key, err := range s.broken {
		if strings.HasPrefix(key, prefix) {
			return fmt.Errorf("%q may be %s: %w: %w", name, key, errUnreadable, err)
		}
	}
	return nil
}

// listVolumes returns the volumes made by CreateVolume, sorted by id, without inline ones.
func (s *store) listVolumes() []volume {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]volume, 0, len(s.volumes))
	for _, id := range slices.Sorted(maps.Keys(s.volumes)) {
		if v := s.volumes[id]; !v.Ephemeral {
			all = append(all, v)
		}
	}
	return all
}

// images returns every volume of type image, including inline ones, in no order.
func (s *store) images() []volume {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []volume
	for _, v := range s.volumes {
		if v.Type == typeImage {
			all = append(all, v)
		}
	}
	return all
}

// listSnapshots returns the ready snapshots, sorted by id.
func (s *store) listSnapshots() []snapshot {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]snapshot, 0, len(s.snapshots))
	for _, id := range slices.Sorted(maps.Keys(s.snapshots)) {
		if n := s.snapshots[id]; n.Phase == phaseReady {
			all = append(all, n)
		}
	}
	return all
}

// prevents reports whether err, from writing a record, prevents the change to phase. A full disk does not
// prevent a deletion, because only that frees space. If the driver then crashes, the orchestrator
// repeats the deletion.
func prevents(err error, phase string) bool {
	return err != nil && !(phase == phaseDeleting && isFull(err))
}

// putVolume makes v durable, then visible.
func (s *store) putVolume(v volume) error {
	v.Version = recordVersion
	if err := s.write(recordsDir, v.ID, v, durable); prevents(err, v.Phase) {
		return fmt.Errorf("record volume %s: %w", v.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumes[v.ID] = v
	return nil
}

// dropVolume removes a volume's record, durably.
func (s *store) dropVolume(id string) error {
	if err := s.remove(recordsDir, id, durable); err != nil {
		return fmt.Errorf("remove record of volume %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.volumes, id)
	return nil
}

// putSnapshot makes n durable, then visible.
func (s *store) putSnapshot(n snapshot) error {
	n.Version = recordVersion
	if err := s.write(snapshotsDir, n.ID, n, durable); prevents(err, n.Phase) {
		return fmt.Errorf("record snapshot %s: %w", n.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[n.ID] = n
	return nil
}

// dropSnapshot removes a snapshot's record, durably.
func (s *store) dropSnapshot(id string) error {
	if err := s.remove(snapshotsDir, id, durable); err != nil {
		return fmt.Errorf("remove record of snapshot %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.snapshots, id)
	return nil
}

// durability is what a write must survive.
type durability bool

const (
	durable  durability = true  // a power failure
	volatile durability = false // only a crash of the driver
)

// write replaces the record of id atomically.
func (s *store) write(sub, id string, record any, d durability) error {
	b, err := json.Marshal(record)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, sub, fileKey(id)+".json")
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && d == durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".tmp"))
	}
	if err := unix.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("rename %s: %w", path, err)
	}
	if d == durable {
		return syncDir(filepath.Join(s.dir, sub))
	}
	return nil
}

func (s *store) remove(sub, id string, d durability) error {
	err := os.Remove(filepath.Join(s.dir, sub, fileKey(id)+".json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if d == durable {
		return syncDir(filepath.Join(s.dir, sub))
	}
	return nil
}

// dataPath returns the path of the data of a volume or snapshot.
func (s *store) dataPath(id, kind string) string {
	name := fileKey(id)
	if kind == typeImage {
		name += ".img"
	}
	return filepath.Join(s.dir, dataDir, name)
}

// syncDir makes the entries of a directory durable. Concurrent calls share a commit of the file
// system's journal.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
