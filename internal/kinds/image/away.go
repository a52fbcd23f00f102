package image

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
)

// The calls that run in a helper.
const (
	callFind   = "image-find"
	callUnpack = "image-unpack"
)

// helperMemory bounds the memory of a helper for an image (bytes): the window of a zstd
// layer, the marks of two million paths, and the program itself.
const helperMemory = 512 << 20

// Helper returns the calls of this package that a helper process serves.
func Helper() isolate.Service {
	return isolate.Service{
		Handlers: map[string]isolate.Handler{callFind: isolate.Handle(findHere), callUnpack: isolate.Handle(unpackHere)},
		Errors:   []error{oci.ErrNotFound, oci.ErrDigest, unpack.ErrLayer, unpack.ErrFull, errors.ErrUnsupported},
		Memory:   map[string]int64{callFind: helperMemory, callUnpack: helperMemory},
	}
}

// findRequest asks for the image of a reference.
type findRequest struct {
	Dirs      []string `json:"dirs"`
	Reference string   `json:"reference"`
}

// unpackRequest asks to unpack an image in the empty directory At.
type unpackRequest struct {
	Image *oci.Image `json:"image"`
	At    string     `json:"at"`
}

// find returns the image of a reference. Its layout is not open.
func (d *Driver) find(ctx context.Context, ref oci.Reference) (*oci.Image, error) {
	return isolate.Ask[*oci.Image](ctx, d.c.Away, "image "+ref.String(), callFind, findRequest{d.c.Dirs, ref.String()})
}

// inProcess runs the calls in this process.
type inProcess struct{}

func (inProcess) Do(ctx context.Context, _, call string, request []byte) ([]byte, error) {
	return Helper().Handlers[call](ctx, request)
}

func findHere(ctx context.Context, r findRequest) (any, error) {
	ref, err := oci.ParseReference(r.Reference)
	if err != nil {
		return nil, err
	}
	image, err := oci.Find(ctx, r.Dirs, ref)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	return image, nil
}

func unpackHere(ctx context.Context, r unpackRequest) (any, error) {
	if err := r.Image.Reopen(); err != nil {
		return nil, err
	}
	defer r.Image.Close()
	fd, err := unix.Open(r.At, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: r.At, Err: err}
	}
	root := os.NewFile(uintptr(fd), content)
	defer root.Close()
	tree, err := unpack.New(root)
	if err != nil {
		return nil, err
	}
	for _, l := range r.Image.Layers {
		if err := apply(ctx, tree, r.Image, l); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.Digest, err)
		}
	}
	return nil, nil
}
