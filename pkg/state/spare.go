package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Names of the files beside the journal.
const (
	spareSuffix   = ".spare"
	damagedSuffix = ".damaged"
	tmpSuffix     = ".tmp"
)

// maxDamaged is how many damaged files are kept; a node with more of them has
// a broken disk, and must not be filled up.
const maxDamaged = 10

const (
	// maxSpareLag is how many transactions the spare copy may be behind while
	// the journal is small.
	maxSpareLag = 128
	// spareBytesPerTx is what one transaction adds to that: it writes some five
	// pages, so that copying costs about as much as the transactions do, however
	// large the journal is.
	spareBytesPerTx = 5 * 4096
)

// renewSpare brings the spare copy up to date when it is too far behind, which
// for a young journal is soon. It is called by the writer while no caller waits.
func (b *Bolt) renewSpare() {
	if b.written < b.spareDue {
		return
	}
	b.spareDue = b.written + max(min(b.written, maxSpareLag), b.size()/spareBytesPerTx)
	b.copySpare()
}

// Spare makes the spare copy of what was opened, unless a change has had it made
// already, and says why the last one could not be made; an earlier one stays then.
// A daemon calls it when it has started: the copy takes a while, in which the
// journal can be neither read nor changed, and until then the copy of the last
// daemon is as young as it was to that one.
func (b *Bolt) Spare(ctx context.Context) error {
	b.mu.Lock()
	err := b.usable(ctx)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	b.opened.Do(b.copySpare)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spareErr
}

// copySpare makes the spare copy.
func (b *Bolt) copySpare() {
	err := b.withFile(func() error { return saveSpare(b.db, b.path) })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spareErr = err
}

// size is how long the journal's file is, in bytes; 0 where that cannot be told.
func (b *Bolt) size() int {
	info, err := os.Stat(b.path)
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// saveSpare replaces the spare copy, atomically, by what db holds now, if all of that
// is as it was written: a value that cannot be read may be whole in the earlier copy.
func saveSpare(db *bolt.DB, path string) error {
	err := catchDamage(func() error {
		return db.View(func(tx *bolt.Tx) error {
			c, err := contentOf(tx)
			if err != nil {
				return err
			}
			if err := c.check(tx.ID()); err != nil {
				return err
			}
			if bad := c.refused(unsound); len(bad) > 0 {
				slices.Sort(bad)
				return fmt.Errorf("%w: %s; the earlier copy stays", errUnreadable, strings.Join(bad, ", "))
			}
			return writeFile(path+spareSuffix, func(f *os.File) error {
				_, err := tx.WriteTo(f)
				return err
			})
		})
	})
	if err != nil {
		return fmt.Errorf("make spare copy of %s: %w", path, err)
	}
	return nil
}

// errUnreadable: the journal has values whose checksum is wrong.
var errUnreadable = errors.New("it has values that cannot be read")

// restoreSpare puts the damaged file aside and writes what the spare holds, with every
// fact in doubt, in its place.
func restoreSpare(path string, damage error) error {
	c, err := readSpare(path+spareSuffix, damage.Error())
	if err != nil {
		return fmt.Errorf("%w; its spare copy cannot be used either: %w. "+
			"Look with csi-volmgr journal check. Restore %s from a backup; or move it and %s away to start without records, "+
			"after which volumes that are mounted now are not known", damage, err, path, path+spareSuffix)
	}
	if err := c.rebuild(path + tmpSuffix); err != nil {
		return fmt.Errorf("make a journal of the spare copy: %w", err)
	}
	if err := keepAside(path, os.Rename); err != nil {
		return fmt.Errorf("put the damaged file aside: %w", err)
	}
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// readSpare reads the spare copy, and doubts its facts for the reason given.
func readSpare(path, why string) (content, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is none")
	case err != nil:
		return nil, err
	case info.Size() == 0:
		return nil, errors.New("it is empty")
	}
	c, _, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return c, c.doubt(why)
}

// keepAside keeps the damaged file, if there is one, under a name beside it: keep
// renames it or links to it. Of more than maxDamaged the first ones stay, and the last.
func keepAside(path string, keep func(path, name string) error) error {
	name := path + damagedSuffix
	for i := 1; i < maxDamaged; i++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		}
		name = fmt.Sprintf("%s%s.%d", path, damagedSuffix, i)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := keep(path, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeFile replaces a file atomically and durably.
func writeFile(path string, write func(*os.File) error) error {
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".new"))
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
