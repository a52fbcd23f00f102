package image_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/imagetest"
)

// counted serves a helper's calls in this process and records them; unpacking fails
// with err.
type counted struct {
	calls []string
	err   error
}

func (c *counted) Do(ctx context.Context, _, call string, request []byte) ([]byte, error) {
	c.calls = append(c.calls, call)
	if c.err != nil && call == "image-unpack" {
		return nil, c.err
	}
	return image.Helper().Handlers[call](ctx, request)
}

func (c *counted) unpacked() int {
	return len(slices.DeleteFunc(slices.Clone(c.calls), func(call string) bool { return call != "image-unpack" }))
}

func (n *node) away() *counted {
	c := &counted{}
	n.driver = image.New(image.Config{Layout: n.layout, Kernel: mount.New(n.layout.Root), Dirs: []string{n.images.Dir}, Away: c})
	return c
}

// fails publishes and returns the error, which must be want.
func (n *node) fails(want error) error {
	n.Helper()
	err := n.driver.Publish(n.Context(), n.volume(pod, name), pod)
	if !errors.Is(err, want) {
		n.Errorf("got %v, want %v", err, want)
	}
	if left := n.trees(); left != 0 {
		n.Errorf("%d trees are left", left)
	}
	return err
}

func refused(err error) bool {
	e, ok := errors.AsType[*state.CallError](err)
	return ok && e.Outcome == state.Refused
}

// An image whose layer has exceeded a limit is not unpacked again: it would exceed it
// again.
//
// Attacks: C49.
func TestAttackLayerThatExhaustsIsNotTriedAgain(t *testing.T) {
	n := newNode(t)
	n.images.Add(name, n.images.Image(imagetest.Layer(n, imagetest.File(strings.Repeat("d/", 300)+"f", "x"))))
	away := n.away()
	if err := n.fails(unpack.ErrLayer); !refused(err) {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := n.fails(image.ErrSpent); !refused(err) || !errors.Is(err, unpack.ErrLayer) {
		t.Errorf("the second time: got %v, want a refusal that says why", err)
	}
	if away.unpacked() != 1 {
		t.Errorf("calls: %q, want one image-unpack", away.calls)
	}
}

// An image that has ended a helper twice is not given to a third one.
//
// Attacks: C49.
func TestAttackImageThatEndsHelpersIsNotTriedAgain(t *testing.T) {
	n := newNode(t)
	n.small()
	away := n.away()
	away.err = isolate.ErrLost
	for range 2 {
		n.fails(isolate.ErrLost)
	}
	if err := n.fails(image.ErrSpent); !refused(err) {
		t.Errorf("got %v, want a refusal", err)
	}
	if away.unpacked() != 2 {
		t.Errorf("calls: %q, want two of image-unpack", away.calls)
	}
}

// An image that was too large is unpacked again only when more space is free.
func TestImageThatWasTooLargeWaitsForSpace(t *testing.T) {
	n := newNode(t)
	store := filepath.Join(n.layout.Plugins(), "kubernetes.io/image")
	if err := os.MkdirAll(store, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", store, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(store, unix.MNT_DETACH) })
	full := filepath.Join(store, "full")
	if err := os.WriteFile(full, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	n.images.Add(name, n.images.Image(imagetest.Layer(n, imagetest.File("a", strings.Repeat("x", 1<<20)))))
	away := n.away()
	for i, want := range []error{unpack.ErrFull, image.ErrSpent, image.ErrSpent} {
		err := n.driver.Publish(t.Context(), n.volume(pod, name), pod)
		if !errors.Is(err, want) {
			t.Errorf("publish %d: got %v, want %v", i, err, want)
		}
	}
	if away.unpacked() != 1 {
		t.Errorf("calls: %q, want one image-unpack", away.calls)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	n.publish(pod, name)
	n.unpublish(pod)
}

// A damaged copy of a layer says nothing about the layer.
func TestDamagedLayerIsTriedAgain(t *testing.T) {
	n := newNode(t)
	good := imagetest.Layer(n, imagetest.File("a/b", "x"))
	bad := imagetest.Layer(n, imagetest.File("a/..", "x"))
	blob := n.images.Blob(imagetest.TAR, good)
	n.images.Add(name, n.images.Manifest([]oci.Digest{imagetest.DigestOf(good)}, blob))
	n.away()
	path := filepath.Join(n.images.Dir, "blobs/sha256", blob.Digest.Hex())
	if err := os.WriteFile(path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n.fails(oci.ErrDigest)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	n.publish(pod, name)
	n.unpublish(pod)
}

// An image that no node can unpack is unpacked once, whatever is wrong with it.
//
// Attacks: C49.
func TestAttackImageThatCannotBeUnpackedIsNotTriedAgain(t *testing.T) {
	good := imagetest.Layer(t, imagetest.File("a", "x"))
	stored := func(mediaType string, plain, blob []byte) func(*node) oci.Descriptor {
		return func(n *node) oci.Descriptor {
			return n.images.Manifest([]oci.Digest{imagetest.DigestOf(good), imagetest.DigestOf(plain)},
				n.images.Blob(imagetest.TAR, good), n.images.Blob(mediaType, blob))
		}
	}
	entries := func(entries ...imagetest.Entry) func(*node) oci.Descriptor {
		layer := imagetest.Layer(t, entries...)
		return stored(imagetest.TAR, layer, layer)
	}
	garbage := []byte(strings.Repeat("garbage ", 512))
	cut := imagetest.Layer(t, imagetest.File("b", strings.Repeat("x", 4096)))[:2048]
	for what, make := range map[string]func(*node) oci.Descriptor{
		"no archive":                stored(imagetest.TAR, garbage, garbage),
		"no gzip":                   stored(imagetest.TAR+"+gzip", garbage, garbage),
		"a cut archive":             stored(imagetest.TAR, cut, cut),
		"another diff_id":           stored(imagetest.TAR, garbage, good),
		"a file that is a parent":   entries(imagetest.File("f", "x"), imagetest.File("f/g", "x")),
		"a name that is too long":   entries(imagetest.File(strings.Repeat("n", 300), "x")),
		"a parent that is a link":   entries(imagetest.Symlink("a", "nowhere"), imagetest.File("a/f", "x")),
		"below such a link":         entries(imagetest.Symlink("a", "/b/c"), imagetest.File("a/d/f", "x")),
		"a hard link to nothing":    entries(imagetest.Link("l", "nothing")),
		"a link in place of itself": entries(imagetest.Symlink("s", "s"), imagetest.File("s/f", "x")),
	} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t)
			n.images.Add(name, make(n))
			away := n.away()
			n.fails(unpack.ErrLayer)
			if err := n.fails(image.ErrSpent); !refused(err) {
				t.Errorf("the second time: got %v, want a refusal", err)
			}
			if away.unpacked() != 1 {
				t.Errorf("calls: %q, want one image-unpack", away.calls)
			}
		})
	}
}
