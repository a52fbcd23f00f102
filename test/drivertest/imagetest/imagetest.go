// Package imagetest makes images in OCI layouts for tests.
package imagetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
)

// The media types of the generated documents, and the annotation of a name.
const (
	Index    = "application/vnd.oci.image.index.v1+json"
	Manifest = "application/vnd.oci.image.manifest.v1+json"
	Config   = "application/vnd.oci.image.config.v1+json"
	TAR      = "application/vnd.oci.image.layer.v1.tar"
	RefName  = "org.opencontainers.image.ref.name"
)

// Entry is an entry of a layer.
type Entry struct {
	tar.Header
	Body string
}

// File returns an entry for a regular file.
func File(name, body string) Entry {
	return Entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}, body}
}

// Dir returns an entry for a directory.
func Dir(name string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}}
}

// Symlink returns an entry for a symbolic link.
func Symlink(name, to string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}}
}

// Link returns an entry for a hard link.
func Link(name, to string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}}
}

// Layer returns a tar archive of the entries.
func Layer(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.Body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Layout is a layout in a directory.
type Layout struct {
	testing.TB
	Dir   string
	index []oci.Descriptor
}

// New makes a layout in a directory, which need not exist.
func New(t testing.TB, dir string) *Layout {
	t.Helper()
	l := &Layout{TB: t, Dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.write("oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`))
	l.Index()
	return l
}

func (l *Layout) write(name string, b []byte) {
	l.Helper()
	if err := os.WriteFile(filepath.Join(l.Dir, name), b, 0o644); err != nil {
		l.Fatal(err)
	}
}

// DigestOf returns the sha256 digest of b.
func DigestOf(b []byte) oci.Digest {
	sum := sha256.Sum256(b)
	return oci.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// Blob adds a blob.
func (l *Layout) Blob(mediaType string, b []byte) oci.Descriptor {
	l.Helper()
	d := oci.Descriptor{MediaType: mediaType, Digest: DigestOf(b), Size: int64(len(b))}
	l.write(l.path(d.Digest), b)
	return d
}

func (l *Layout) path(d oci.Digest) string {
	return filepath.Join("blobs", strings.Replace(string(d), ":", "/", 1))
}

// Spoil changes one byte of a blob.
func (l *Layout) Spoil(d oci.Digest) {
	l.Helper()
	b, err := os.ReadFile(filepath.Join(l.Dir, l.path(d)))
	if err != nil {
		l.Fatal(err)
	}
	b[len(b)/2] ^= 1
	l.write(l.path(d), b)
}

// JSON adds a document as a blob.
func (l *Layout) JSON(mediaType string, document any) oci.Descriptor {
	l.Helper()
	b, err := json.Marshal(document)
	if err != nil {
		l.Fatal(err)
	}
	return l.Blob(mediaType, b)
}

// Compress returns a layer as it is stored for a media type's suffix: "", +gzip or
// +zstd.
func Compress(t testing.TB, layer []byte, suffix string) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch suffix {
	case "":
		return layer
	case "+gzip":
		w := gzip.NewWriter(&b)
		_, err = w.Write(layer)
		err = errors.Join(err, w.Close())
	case "+zstd":
		var w *zstd.Encoder
		if w, err = zstd.NewWriter(&b); err == nil {
			_, err = w.Write(layer)
			err = errors.Join(err, w.Close())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Image adds an image and returns the descriptor of its manifest. It stores the layers
// with gzip, uncompressed and with zstd in turn.
func (l *Layout) Image(layers ...[]byte) oci.Descriptor {
	l.Helper()
	var stored []oci.Descriptor
	var plain []oci.Digest
	for i, layer := range layers {
		suffix := []string{"+gzip", "", "+zstd"}[i%3]
		stored = append(stored, l.Blob(TAR+suffix, Compress(l.TB, layer, suffix)))
		plain = append(plain, DigestOf(layer))
	}
	return l.Manifest(plain, stored...)
}

// Manifest adds a manifest of stored layers; plain are the digests of the uncompressed
// layers.
func (l *Layout) Manifest(plain []oci.Digest, stored ...oci.Descriptor) oci.Descriptor {
	l.Helper()
	config := l.JSON(Config, map[string]any{
		"os": "linux", "architecture": runtime.GOARCH, "rootfs": map[string]any{"type": "layers", "diff_ids": plain},
	})
	return l.JSON(Manifest, map[string]any{"schemaVersion": 2, "mediaType": Manifest, "config": config, "layers": stored})
}

// Add adds an entry to the layout's index.
func (l *Layout) Add(name string, d oci.Descriptor) oci.Descriptor {
	l.Helper()
	if name != "" {
		d.Annotations = map[string]string{RefName: name}
	}
	l.index = append(l.index, d)
	l.Index()
	return d
}

// Index rewrites the layout's index, with the given entries if there are any.
func (l *Layout) Index(entries ...oci.Descriptor) {
	l.Helper()
	if len(entries) > 0 {
		l.index = entries
	}
	b, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": append([]oci.Descriptor{}, l.index...)})
	if err != nil {
		l.Fatal(err)
	}
	l.write("index.json", b)
}

// Archive writes the layout as an archive to path.
func (l *Layout) Archive(path string) {
	l.Helper()
	f, err := os.Create(path)
	if err != nil {
		l.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := errors.Join(w.AddFS(os.DirFS(l.Dir)), w.Close(), f.Close()); err != nil {
		l.Fatal(err)
	}
}
