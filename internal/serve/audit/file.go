package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// file is one log file and its older ones. It stays open between lines, since a daemon adds
// a line for each object that a client applies. The Log's mutex guards it.
type file struct {
	path string
	open *os.File    // nil before the first line and after a failure
	info os.FileInfo // identifies open
}

// add appends a line.
func (f *file) add(line Line) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := f.prepare(int64(len(text))); err != nil {
		return err
	}
	if _, err := f.open.Write(text); err != nil {
		return errors.Join(err, f.close()) // prepare ends the line that may be cut off
	}
	return nil
}

// addDurably appends a line and returns when it is on the disk.
func (f *file) addDurably(line Line) error {
	if err := f.add(line); err != nil {
		return err
	}
	return errors.Join(f.open.Sync(), syncDir(filepath.Dir(f.path)))
}

// prepare opens the file at the path for n more bytes. It begins a new file if this one
// is full, or if an operator has moved or removed it.
func (f *file) prepare(n int64) error {
	st, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case st.Size()+n > maxBytes:
		if err := f.rotate(); err != nil {
			return fmt.Errorf("begin a new file: %w", err)
		}
	case f.open != nil && os.SameFile(st, f.info):
		return nil
	}
	if err := f.close(); err != nil {
		return err
	}
	o, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	f.open = o
	if f.info, err = o.Stat(); err == nil && torn(o, f.info.Size()) {
		_, err = o.WriteString("\n")
	}
	if err != nil {
		return errors.Join(err, f.close())
	}
	return nil
}

func (f *file) close() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}

// torn reports whether a crash or a full disk cut the file's last line off.
func torn(f *os.File, size int64) bool {
	if size == 0 {
		return false
	}
	last := make([]byte, 1)
	_, err := f.ReadAt(last, size-1)
	return err == nil && last[0] != '\n'
}

// rotate renames the file and its older ones, and drops the oldest.
func (f *file) rotate() error {
	for i := maxOld - 1; i >= 1; i-- {
		if err := os.Rename(f.old(i), f.old(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(f.path, f.old(1))
}

func (f *file) old(i int) string { return f.path + "." + strconv.Itoa(i) }

// lines returns the lines of the file and of its older ones, oldest first.
func (f *file) lines() ([]Line, error) {
	var lines []Line
	for i := maxOld; i >= 0; i-- {
		path := f.path
		if i > 0 {
			path = f.old(i)
		}
		more, err := readLines(path)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func readLines(path string) ([]Line, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 2*maxBytes))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var lines []Line
	for text := range bytes.SplitSeq(data, []byte("\n")) {
		var line Line
		if json.Unmarshal(text, &line) == nil && line.Act != 0 {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
