package journal

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

type pebbleStore struct{ db *pebble.DB }

// OpenPebble opens a pebble directory, with the small memtable that suits a journal of
// some megabytes.
func OpenPebble(dir string) (Store, error) {
	db, err := pebble.Open(dir, &pebble.Options{MemTableSize: 4 << 20, Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	return &pebbleStore{db}, nil
}

func (s *pebbleStore) Write(changes map[string][]byte) error {
	batch := s.db.NewBatch()
	for key, value := range changes {
		var err error
		if value == nil {
			err = batch.Delete([]byte(key), nil)
		} else {
			err = batch.Set([]byte(key), value, nil)
		}
		if err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	return errors.Join(batch.Commit(pebble.Sync), batch.Close())
}

func (s *pebbleStore) Load() (map[string][]byte, error) {
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for iter.First(); iter.Valid(); iter.Next() {
		out[string(iter.Key())] = bytes.Clone(iter.Value())
	}
	return out, iter.Close()
}

func (s *pebbleStore) Close() error { return s.db.Close() }

// quiet drops pebble's log lines about its files.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic("pebble: " + format) }
