package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Suffixes of the files next to the journal.
const (
	spareSuffix   = ".spare"
	damagedSuffix = ".damaged"
	tmpSuffix     = ".tmp"
)

// maxDamaged limits how many damaged files are kept: a node with more of them has a
// broken disk, which must not fill up.
const maxDamaged = 10

const (
	// maxSpareLag is how many transactions the spare copy may be behind while the journal
	// is small.
	maxSpareLag = 128
	// spareBytesPerTx adds one transaction to that lag for every so many bytes of the
	// journal. A transaction writes about five pages, so copying costs about as much as
	// the transactions themselves, however large the journal is.
	spareBytesPerTx = 5 * 4096
)

// renewSpare updates the spare copy if it is too far behind, which happens soon for a
// young journal. The writer calls it while no caller waits.
func (b *Bolt) renewSpare() {
	if b.written < b.spareDue {
		return
	}
	b.spareDue = b.written + max(min(b.written, maxSpareLag), b.size()/spareBytesPerTx)
	b.copySpare()
}

// Spare makes the first spare copy after opening, unless a change already had it made,
// and returns why the last attempt failed; a failed attempt leaves the earlier copy in
// place. A daemon calls it after it has started, because the journal can be neither read
// nor changed during the copy. Until then the copy is as recent as the previous daemon
// left it.
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

// copySpare makes the spare copy and notes the error for SpareErr.
func (b *Bolt) copySpare() {
	err := b.withFile(func() error { return saveSpare(b.db, b.path) })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spareErr = err
}

// size returns the length of the journal's file in bytes; 0 if unknown.
func (b *Bolt) size() int {
	info, err := os.Stat(b.path)
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// saveSpare atomically replaces the spare copy with the current content of db. A value that can no
// longer be read is copied as it is, with the last sound value of its key ([content.keepOlder]). Then
// the error is ErrUnreadable, although the copy is made.
func saveSpare(db *bolt.DB, path string) error {
	err := catchDamage(func() error {
		return db.View(func(tx *bolt.Tx) error {
			if _, err := check(tx); err != nil {
				return err
			}
			switch bad, err := refused(tx, unsound); {
			case err != nil:
				return err
			case len(bad) > 0:
				return saveUnsound(tx, path+spareSuffix, bad)
			}
			return writeFile(path+spareSuffix, func(f *os.File) error {
				w := &keptErr{File: f}
				_, err := tx.WriteTo(w)
				return cmp.Or(w.err, err)
			})
		})
	})
	if err != nil && !errors.Is(err, ErrUnreadable) {
		return fmt.Errorf("make spare copy of %s: %w", path, err)
	}
	return err
}

// saveUnsound makes the spare copy of a file with the unsound values bad.
func saveUnsound(tx *bolt.Tx, spare string, bad []entryKey) error {
	c, err := copyOf(tx)
	if err != nil {
		return err
	}
	old, err := readSpare(spare)
	if err != nil {
		old = content{}
	}
	lost := c.keepOlder(bad, old)
	if err := rebuild(spare, c.sums(), c.entries); err != nil {
		return err
	}
	if len(lost) > 0 {
		return fmt.Errorf("%w: %v; the spare copy has no sound value of %v", ErrUnreadable, bad, lost)
	}
	return fmt.Errorf("%w: %v", ErrUnreadable, bad)
}

// keepOlder puts the last sound value of each bad one, as the earlier spare copy has it, into a bucket
// of its own, and returns those that it does not have. A restore of the spare copy does not use them: an
// older pod or record among newer ones would be taken for the present one, while what cannot be read
// counts as in use. Mend does, at an operator's request.
func (c content) keepOlder(bad []entryKey, old content) (lost []entryKey) {
	for _, at := range bad {
		value, ok := old.sound(at)
		if !ok {
			lost = append(lost, at)
			continue
		}
		bucket := olderPrefix + at.bucket
		if c[bucket] == nil {
			c[bucket] = map[string][]byte{}
		}
		c[bucket][at.key] = value
	}
	return lost
}

// sound returns the sound value that a spare copy has of a key, be it the last one or an older one.
func (c content) sound(at entryKey) ([]byte, bool) {
	for _, bucket := range []string{at.bucket, olderPrefix + at.bucket} {
		if value, ok := c[bucket][at.key]; ok && unsound(at.bucket, value) == nil {
			return value, true
		}
	}
	return nil, false
}

// dropOlder removes what keepOlder put.
func (c content) dropOlder() {
	maps.DeleteFunc(c, func(bucket string, _ map[string][]byte) bool { return strings.HasPrefix(bucket, olderPrefix) })
}

// keptErr keeps the error of a write, which bbolt returns as text only.
type keptErr struct {
	*os.File
	err error
}

func (w *keptErr) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	w.err = cmp.Or(err, w.err)
	return n, err
}

// ReadFrom is Write for io.Copy.
func (w *keptErr) ReadFrom(r io.Reader) (int64, error) {
	n, err := w.File.ReadFrom(r)
	w.err = cmp.Or(err, w.err)
	return n, err
}

// restoreSpare puts the damaged file aside and writes a new one with the spare copy's
// content, with every fact in doubt.
func restoreSpare(path string, damage error) error {
	c, err := readSpare(path + spareSuffix)
	if err == nil {
		c.dropOlder()
		err = c.doubt(damage.Error())
	}
	if err != nil {
		return fmt.Errorf("%w; its spare copy cannot be used either: %w. "+
			"Look with csi-volmgr journal check. Move %s away and copy a backup of it to %s, which the start takes for an "+
			"older copy; or move both away to start without records, after which csi-volmgr does not know the volumes that are "+
			"mounted now", damage, err, path, path+spareSuffix)
	}
	if err := rebuild(path+tmpSuffix, c.sums(), c.entries); err != nil {
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

// readSpare reads the spare copy.
func readSpare(path string) (content, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is none")
	case err != nil:
		return nil, err
	case info.Size() == 0:
		return nil, errors.New("it is empty")
	}
	return readFile(path)
}

// keepAside keeps the damaged file, if it exists, under a name next to it, by calling
// keep, which renames or links the file. If there are more than maxDamaged, the first
// ones stay, and the last.
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

// writeFile atomically and durably replaces a file.
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
