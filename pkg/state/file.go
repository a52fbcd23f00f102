package state

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/filelock"
)

// journalFormat is the version of the file's own layout: its buckets and how
// their values are guarded. Records have a version each.
const journalFormat = 1

// lockTimeout bounds the wait for bbolt's own lock of the file. lockFile has
// kept other daemons out by then; whoever still holds it is a tool that reads
// the journal, which is quick.
const lockTimeout = 2 * time.Second

// lockFile takes the lock that keeps a second daemon away. The file has the
// owner's process id in it, and stays when the lock is released.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Take(f); errors.Is(err, filelock.ErrHeld) {
		holder, _ := os.ReadFile(path)
		return nil, fmt.Errorf("%w (process %s)", ErrLocked, bytes.TrimSpace(holder[:min(len(holder), 32)]))
	} else if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openDB opens, checks and if need be initialises the file. An error that is
// ErrDamaged says that the file's content is at fault.
func openDB(path string) (*bolt.DB, error) {
	if err := lost(path); err != nil {
		return nil, err
	}
	var db *bolt.DB
	var file *os.File
	err := guard(func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout:      lockTimeout,
			FreelistType: bolt.FreelistMapType,
			NoStatistics: true,
			OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag, perm)
				if file == nil {
					file = f
				}
				return f, err
			},
		})
		return openError(err)
	})
	if err != nil {
		if file != nil {
			// Open may have panicked and left its file, and so the lock, behind.
			_ = file.Close()
		}
		return nil, err
	}
	if err = guard(func() error { return checkDB(db) }); err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		// A transaction that panicked may hold locks that Close would wait for.
		_ = file.Close()
		return nil, err
	}
	return db, nil
}

// lost reports a journal that is gone or empty although it once was there.
func lost(path string) error {
	if _, err := os.Stat(path + spareSuffix); err != nil {
		return nil
	}
	switch st, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the file is gone", ErrDamaged)
	case err == nil && st.Size() == 0:
		return fmt.Errorf("%w: the file is empty", ErrDamaged)
	}
	return nil
}

// openError tells what is wrong with the content from what is wrong with the host.
func openError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("%w (another program has the file open)", ErrLocked)
	}
	if _, ok := errors.AsType[unix.Errno](err); ok {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// checkDB reads everything once, so that damage shows now and not during a
// mount, and writes the format into a new file.
func checkDB(db *bolt.DB) error {
	var format []byte
	empty := true
	err := db.View(func(tx *bolt.Tx) error {
		if err := walk(tx); err != nil {
			return err
		}
		first, _ := tx.Cursor().First()
		empty = first == nil
		if meta := tx.Bucket([]byte(metaBucket)); meta != nil {
			format = bytes.Clone(meta.Get([]byte(formatKey)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if empty {
		return db.Update(func(tx *bolt.Tx) error {
			return put(tx, change{bucket: metaBucket, values: map[string][]byte{formatKey: strconv.AppendInt(nil, journalFormat, 10)}})
		})
	}
	n, err := strconv.Atoi(string(format))
	switch {
	case err != nil || n < 1:
		return fmt.Errorf("%w: its format is %q: it was not written by csi-volmgr", ErrDamaged, format)
	case n > journalFormat:
		return fmt.Errorf("%w: %d, and this csi-volmgr reads up to %d; run the version that wrote it, or a newer one", ErrFormat, n, journalFormat)
	}
	return nil
}

// walk reads every key and value and checks their order. bbolt's own Check
// knows more, but does it in a goroutine of its own, where a fault in the
// memory map cannot be caught and ends the process.
func walk(tx *bolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		var last []byte
		return b.ForEach(func(k, v []byte) error {
			if bytes.Compare(last, k) >= 0 {
				return fmt.Errorf("%w: bucket %q: keys are out of order", ErrDamaged, name)
			}
			last = k
			crc32.Checksum(v, castagnoli) // reads every byte; the sum is of no interest
			return nil
		})
	})
}

// guard runs fn and turns a panic of bbolt, or a fault in its memory map, into
// ErrDamaged: both mean that the file does not hold what it says.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	return fn()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
