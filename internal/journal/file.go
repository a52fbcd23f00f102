package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/filelock"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// journalFormat is the version of the file's layout: its buckets and how their values are
// protected. Records have versions of their own.
const journalFormat = 1

// lockTimeout limits the wait for bbolt's own file lock. lockFile has already excluded
// other daemons; a process that still holds it is a tool that reads the journal, which is
// quick.
const lockTimeout = 2 * time.Second

// lockFile takes the lock that excludes a second daemon. The lock file contains the
// owner's process id and stays when the lock is released. On a full disk it may be empty.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Take(f); errors.Is(err, filelock.ErrHeld) {
		owner, _ := os.ReadFile(path)
		return nil, fmt.Errorf("%w%s", ErrLocked, cmp.Or(filelock.Holder(path),
			fmt.Sprintf(" (process %s)", bytes.TrimSpace(owner[:min(len(owner), 32)]))))
	} else if err != nil {
		return nil, err
	}
	owner := fmt.Appendln(nil, os.Getpid())
	_, err = f.WriteAt(owner, 0) // first, since a full disk may not give back what Truncate frees
	if noRoom(err) {
		owner, err = nil, nil
	}
	if err == nil {
		err = f.Truncate(int64(len(owner)))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openDB checks what the journal holds and opens it for changes; it creates a missing
// file. If the file's last write may be lost, openDB doubts every fact and keeps the
// original file. An ErrDamaged means that the file's content is at fault.
func openDB(path string) (db *bolt.DB, s sums, r state.Recovery, err error) {
	if err := lost(path); err != nil {
		return nil, sums{}, state.Recovery{}, err
	}
	if info, statErr := os.Stat(path); statErr == nil && info.Size() > 0 {
		s, r, err = renew(path)
	} else {
		c := newContent()
		s = c.sums()
		err = rebuild(path, s, c.entries)
	}
	if err != nil {
		return nil, sums{}, state.Recovery{}, err
	}
	db, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout: lockTimeout, FreelistType: bolt.FreelistMapType,
		NoStatistics: true,
	})
	return db, s, r, openError(err)
}

// newContent is what a new journal holds.
func newContent() content {
	return content{metaBucket: {formatKey: strconv.AppendInt(nil, journalFormat, 10)}}
}

// lost returns an error if the journal is missing or empty although it existed before.
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

// openError separates damage of the content from faults of the host.
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

// catchDamage runs fn and turns a panic of bbolt, or a fault in its memory map, into
// ErrDamaged: both mean that the file's content is inconsistent.
func catchDamage(fn func() error) (err error) {
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
