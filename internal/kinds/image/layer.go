package image

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
)

// maxWindow bounds the memory that a zstd layer may ask for (bytes); it is zstd's own
// default limit.
const maxWindow = 128 << 20

// apply unpacks a layer and verifies it: the blob against its descriptor, and the
// uncompressed layer against the image's configuration. An error is [unpack.ErrLayer] if
// another attempt would fail in the same way.
func apply(ctx context.Context, tree *unpack.Tree, image *oci.Image, l oci.Layer) error {
	blob, err := image.Open(l)
	if err != nil {
		return err
	}
	defer blob.Close()
	err = applyBlob(ctx, tree, blob, l)
	if err != nil && (ctx.Err() != nil || !isOfLayer(err)) {
		return err
	}
	if verr := blob.Verify(); verr != nil {
		return verr // only this copy of the layer is damaged
	}
	if err != nil && !errors.Is(err, unpack.ErrLayer) {
		return fmt.Errorf("%w: %w", unpack.ErrLayer, err)
	}
	return err
}

func applyBlob(ctx context.Context, tree *unpack.Tree, blob *oci.Blob, l oci.Layer) error {
	plain, done, err := decompress(l.MediaType, unpack.Until(ctx, blob))
	if err != nil {
		return err
	}
	defer done()
	var proof oci.Hasher
	if l.DiffID != "" {
		if proof, err = oci.NewHasher(l.DiffID); err != nil {
			return err
		}
		plain = io.TeeReader(plain, proof)
	}
	if err := tree.Apply(ctx, plain); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, plain); err != nil { // bytes after the archive
		return err
	}
	if l.DiffID != "" {
		if err := proof.Verify(); err != nil {
			return fmt.Errorf("the uncompressed layer: %w", err)
		}
	}
	return nil
}

// isOfLayer reports whether the content of a layer is the cause of an error, and not the
// node: its entries contradict each other or no file system has such names, or it cannot
// be decoded.
func isOfLayer(err error) bool {
	if errors.Is(err, unpack.ErrFull) {
		return false
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	return !ok || slices.Contains([]syscall.Errno{
		syscall.ENOTDIR, syscall.EISDIR, syscall.ENOENT, syscall.EEXIST, syscall.ELOOP, syscall.ENAMETOOLONG,
	}, errno)
}

// decompress returns the tar archive in a blob.
func decompress(mediaType string, blob io.Reader) (plain io.Reader, done func(), err error) {
	form, ok := strings.CutPrefix(mediaType, "application/vnd.oci.image.layer.v1.tar")
	if !ok {
		form, ok = strings.CutPrefix(mediaType, "application/vnd.oci.image.layer.nondistributable.v1.tar")
	}
	switch {
	case ok && form == "", mediaType == "application/vnd.docker.image.rootfs.diff.tar":
		return blob, func() {}, nil
	case ok && form == "+gzip", mediaType == "application/vnd.docker.image.rootfs.diff.tar.gzip":
		z, err := gzip.NewReader(blob)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { z.Close() }, nil
	case ok && form == "+zstd", mediaType == "application/vnd.docker.image.rootfs.diff.tar.zstd":
		z, err := zstd.NewReader(blob, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return nil, nil, fmt.Errorf("media type %.100q is not a file system layer: %w", mediaType, unpack.ErrLayer)
}
