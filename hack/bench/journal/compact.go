package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// compact writes all live records into a new file with room for as much again, and replaces
// the old one by it.
func (w *wal) compact() error {
	next := w.path() + ".new"
	f, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	first := encode(w.seq+1, w.live)
	if len(w.live) == 0 {
		first = nil
	}
	size := max(minLogBytes, 2*int64(len(first)))
	if err := fill(f, first, size); err != nil {
		return errors.Join(err, f.Close(), os.Remove(next))
	}
	if err := errors.Join(os.Rename(next, w.path()), syncDir(w.dir)); err != nil {
		return errors.Join(err, f.Close())
	}
	if w.file != nil {
		if err := w.file.Close(); err != nil {
			return err
		}
	}
	if first != nil {
		w.seq++
	}
	w.file, w.size, w.end = f, size, int64(len(first))
	return nil
}

// fill writes zeros after the first frame, not holes: the first fdatasync of a block that
// was never written would also write metadata.
func fill(f *os.File, first []byte, size int64) error {
	if _, err := f.Write(first); err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(len(first)); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}

func datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
