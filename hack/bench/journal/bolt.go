package journal

import (
	"bytes"
	"errors"

	bolt "go.etcd.io/bbolt"
)

const bucket = "volumes"

type boltStore struct{ db *bolt.DB }

// OpenBolt opens a bbolt file with the options of pkg/state: the free list is
// not written, and the file is synced at the end of each transaction.
func OpenBolt(dir string) (Store, error) {
	db, err := bolt.Open(dir+"/state.db", 0o600, &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	if err := db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte(bucket))
		return err
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &boltStore{db}, nil
}

func (s *boltStore) Write(changes map[string][]byte) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		for key, value := range changes {
			var err error
			if value == nil {
				err = b.Delete([]byte(key))
			} else {
				err = b.Put([]byte(key), value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *boltStore) Load() (map[string][]byte, error) {
	out := map[string][]byte{}
	return out, s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(k, v []byte) error {
			out[string(k)] = bytes.Clone(v)
			return nil
		})
	})
}

func (s *boltStore) Close() error { return s.db.Close() }
