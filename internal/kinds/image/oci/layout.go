package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	layoutFile, indexFile = "oci-layout", "index.json"
	// layoutVersion is the only defined version.
	layoutVersion = "1.0.0"
	// maxDocument bounds an index, a manifest and a configuration (bytes). Registries
	// accept at most 4 MiB.
	maxDocument = 8 << 20
	// maxCommas bounds the elements of a document's lists: two bytes of JSON may decode
	// to a descriptor of a hundred bytes, whatever is between the commas. A descriptor has
	// at least two commas of its own.
	maxCommas  = 1 << 18
	maxEntries = 100_000
	// maxName is the longest name in an archive that can belong to a layout (bytes).
	maxName = 256
)

// layout is an open layout.
type layout struct {
	// path is the path of the directory or archive.
	path  string
	store opener
}

// opener opens the regular files of a layout by name. If a file is missing, the error
// wraps [os.ErrNotExist].
type opener interface {
	open(name string) (io.ReadCloser, int64, error)
	Close() error
}

// openLayout opens the layout at a path; ok is false if there is none.
func openLayout(at string, dir bool) (l layout, ok bool, err error) {
	l.path = at
	if dir {
		root, err := os.OpenRoot(at)
		if err != nil {
			return l, false, err
		}
		l.store = directory{root}
	} else if l.store, err = openArchive(at); err != nil {
		return l, false, err
	}
	var version struct {
		Version string `json:"imageLayoutVersion"`
	}
	err = l.document(layoutFile, &version)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return l, false, l.store.Close()
	case err == nil && version.Version != layoutVersion:
		err = fmt.Errorf("%s: imageLayoutVersion: found %.40q, want %s", at, version.Version, layoutVersion)
	}
	if err != nil {
		return l, false, errors.Join(err, l.store.Close())
	}
	return l, true, nil
}

// document decodes a file of the layout that has no digest.
func (l layout) document(name string, into any) error {
	f, size, err := l.store.open(name)
	if err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	defer f.Close()
	if size > maxDocument {
		return fmt.Errorf("%s: %s has %d bytes, more than %d", l.path, name, size, maxDocument)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxDocument))
	if err == nil {
		err = parse(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", l.path, name, err)
	}
	return nil
}

func parse(text []byte, into any) error {
	if n := bytes.Count(text, []byte{','}); n > maxCommas {
		return fmt.Errorf("found %d commas, want at most %d", n, maxCommas)
	}
	return json.Unmarshal(text, into)
}

// blob opens a blob.
func (l layout) blob(d Descriptor) (*Blob, error) {
	h, err := NewHasher(d.Digest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.path, err)
	}
	f, size, err := l.store.open(d.Digest.path())
	if err != nil {
		return nil, fmt.Errorf("%s: blob %s: %w", l.path, d.Digest, err)
	}
	if size != d.Size {
		return nil, errors.Join(fmt.Errorf("%s: blob %s has %d bytes, but its descriptor says %d: %w", l.path, d.Digest, size,
			d.Size, ErrDigest), f.Close())
	}
	return &Blob{f, h, d.Size}, nil
}

// read verifies a small blob and decodes it.
func (l layout) read(d Descriptor, into any) error {
	if d.Size > maxDocument {
		return fmt.Errorf("%s: blob %s has %d bytes, more than %d", l.path, d.Digest, d.Size, maxDocument)
	}
	b, err := l.blob(d)
	if err != nil {
		return err
	}
	defer b.Close()
	text, err := io.ReadAll(b)
	if err == nil {
		err = b.Verify()
	}
	if err == nil {
		err = parse(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: blob %s: %w", l.path, d.Digest, err)
	}
	return nil
}

// directory is a layout in a directory.
type directory struct{ *os.Root }

func (d directory) open(name string) (io.ReadCloser, int64, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not block on a pipe, which is refused below
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size(), nil
}

// archive is a layout in a tar archive, with the positions of its files.
type archive struct {
	*os.File
	files map[string]part
}

type part struct{ at, size int64 }

func openArchive(name string) (*archive, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	a := &archive{f, map[string]part{}}
	if err := a.list(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return a, nil
}

// list reads the archive's headers. The reader of archive/tar reads only the header, so
// the file's offset is then that of the content.
func (a *archive) list() error {
	if st, err := a.Stat(); err != nil || !st.Mode().IsRegular() {
		return errors.Join(err, errors.New("not a regular file"))
	}
	r := tar.NewReader(a.File)
	for n := 0; ; n++ {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read as a tar archive: %w", err)
		}
		if n == maxEntries {
			return fmt.Errorf("more than %d files", maxEntries)
		}
		if h.Typeflag != tar.TypeReg || len(h.Name) > maxName {
			continue
		}
		at, err := a.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		a.files[path.Clean("/" + filepath.ToSlash(h.Name))[1:]] = part{at, h.Size}
	}
}

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	p, ok := a.files[name]
	if !ok {
		return nil, 0, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(a.File, p.at, p.size)), p.size, nil
}
