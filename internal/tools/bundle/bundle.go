// Package bundle writes what is known of a node into one archive that can be given to
// other people. It leaves out what is or may be a secret.
//
// Owns: the form of the archive, and what is removed from each kind of file.
//
// Does not: ask a driver or the kernel; its caller does.
//
// Concurrency: functions of their arguments; safe for concurrent use.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"time"
)

// File is one file of an archive.
type File struct {
	// Name is a path in the archive, with slashes.
	Name string
	Data []byte
}

// Write writes files as a gzipped tar archive below the directory top, with
// modification time at. It removes from every file what looks like a secret ([Clean]).
func Write(w io.Writer, top string, at time.Time, files []File) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range files {
		data := Clean(f.Data)
		h := &tar.Header{
			Name: path.Join(top, f.Name), Mode: 0o600, Size: int64(len(data)), ModTime: at,
			Format: tar.FormatPAX,
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s into the bundle: %w", f.Name, err)
		}
		if _, err := t.Write(data); err != nil {
			return fmt.Errorf("write %s into the bundle: %w", f.Name, err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}
