package oci

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
)

// The supported media types (OCI Image Specification 1.1, and Docker's for the same
// documents).
const (
	typeIndex, typeList = "application/vnd.oci.image.index.v1+json",
		"application/vnd.docker.distribution.manifest.list.v2+json"
	typeManifest, typeDocker = "application/vnd.oci.image.manifest.v1+json",
		"application/vnd.docker.distribution.manifest.v2+json"
	typeConfig, typeConfigDocker = "application/vnd.oci.image.config.v1+json",
		"application/vnd.docker.container.image.v1+json"
	maxIndexDepth, maxLayers        = 3, 256
	maxMediaType                    = 256 // bytes, of a layer's
	nameByContainerd, nameByOCI     = "io.containerd.image.name", "org.opencontainers.image.ref.name"
	typeAttestation, annotationType = "attestation-manifest", "vnd.docker.reference.type"
)

// Descriptor describes a blob.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      Digest            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    *platform         `json:"platform"`
}

type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant"`
}

type index struct {
	MediaType string       `json:"mediaType"`
	Manifests []Descriptor `json:"manifests"`
}

type manifest struct {
	MediaType string       `json:"mediaType"`
	Config    Descriptor   `json:"config"`
	Layers    []Descriptor `json:"layers"`
}

type config struct {
	RootFS struct {
		DiffIDs []Digest `json:"diff_ids"`
	} `json:"rootfs"`
}

// Layer is a layer of an image.
type Layer struct {
	Descriptor
	// DiffID is the digest of the uncompressed layer, or "" if the image does not have
	// it.
	DiffID Digest `json:"diffID"`
}

// Image is an image for this platform, found in a layout, which stays open until Close.
// Encoded as JSON, it can be sent to another process, which opens the layout again
// (Reopen).
type Image struct {
	// Digest is the digest of its manifest.
	Digest Digest `json:"digest"`
	// Layers are the layers of its file system, lowest first.
	Layers []Layer `json:"layers"`
	// Layout is the path of its layout, a directory or an archive.
	Layout string `json:"layout"`

	layout layout
}

// Open opens a layer's blob.
func (i *Image) Open(l Layer) (*Blob, error) { return i.layout.blob(l.Descriptor) }

// Reopen opens the layout of an image received from another process.
func (i *Image) Reopen() error {
	st, err := os.Lstat(i.Layout)
	if err != nil {
		return err
	}
	l, ok, err := openLayout(i.Layout, st.IsDir())
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: no longer a layout: %w", i.Layout, ErrNotFound)
	}
	i.layout = l
	return nil
}

// Close closes the layout.
func (i *Image) Close() error { return i.layout.store.Close() }

// image returns the image that a descriptor leads to.
func (l layout) image(d Descriptor, depth int) (*Image, error) {
	switch d.MediaType {
	case typeIndex, typeList:
		if depth == maxIndexDepth {
			return nil, fmt.Errorf("%s: index %s is nested more than %d deep", l.path, d.Digest, depth)
		}
		var all index
		if err := l.read(d, &all); err != nil {
			return nil, err
		}
		one, err := choose(all.Manifests)
		if err != nil {
			return nil, fmt.Errorf("%s: index %s: %w", l.path, d.Digest, err)
		}
		return l.image(one, depth+1)
	case typeManifest, typeDocker:
		return l.manifest(d)
	}
	return nil, fmt.Errorf("%s: %s has media type %.100q, which is neither an index nor an image", l.path, d.Digest,
		d.MediaType)
}

func (l layout) manifest(d Descriptor) (*Image, error) {
	var m manifest
	if err := l.read(d, &m); err != nil {
		return nil, err
	}
	if m.MediaType != "" && m.MediaType != d.MediaType {
		return nil, fmt.Errorf("%s: manifest %s has mediaType %.100q inside", l.path, d.Digest, m.MediaType)
	}
	if len(m.Layers) == 0 || len(m.Layers) > maxLayers {
		return nil, fmt.Errorf("%s: manifest %s has %d layers, want 1 to %d", l.path, d.Digest, len(m.Layers), maxLayers)
	}
	i := &Image{Digest: d.Digest, Layout: l.path, layout: l}
	var c config
	if m.Config.MediaType == typeConfig || m.Config.MediaType == typeConfigDocker {
		if err := l.read(m.Config, &c); err != nil {
			return nil, err
		}
		if len(c.RootFS.DiffIDs) != len(m.Layers) {
			return nil, fmt.Errorf("%s: manifest %s has %d layers, but its configuration has %d diff_ids", l.path, d.Digest,
				len(m.Layers), len(c.RootFS.DiffIDs))
		}
	}
	for n, layer := range m.Layers {
		if err := layer.Digest.check(); err != nil {
			return nil, fmt.Errorf("%s: manifest %s: layer %d: %w", l.path, d.Digest, n, err)
		}
		if len(layer.MediaType) > maxMediaType {
			return nil, fmt.Errorf("%s: manifest %s: layer %d: mediaType has %d bytes, want at most %d", l.path, d.Digest, n,
				len(layer.MediaType), maxMediaType)
		}
		one := Layer{Descriptor: Descriptor{MediaType: layer.MediaType, Digest: layer.Digest, Size: layer.Size}}
		if c.RootFS.DiffIDs != nil {
			one.DiffID = c.RootFS.DiffIDs[n]
		}
		i.Layers = append(i.Layers, one)
	}
	return i, nil
}

// choose returns the manifest for this platform. A manifest without a platform fits
// any.
func choose(manifests []Descriptor) (Descriptor, error) {
	var found []Descriptor
	var platforms []string
	for _, d := range manifests {
		if d.Annotations[annotationType] == typeAttestation {
			continue
		}
		if p := d.Platform; p != nil {
			platforms = append(platforms, p.OS+"/"+p.Architecture)
			if p.OS != "linux" || p.Architecture != runtime.GOARCH {
				continue
			}
		}
		found = append(found, d)
	}
	// Prefer the baseline variant of an architecture, which every machine can run.
	slices.SortStableFunc(found, func(a, b Descriptor) int { return rank(a) - rank(b) })
	if len(found) == 0 {
		return Descriptor{}, fmt.Errorf("it has nothing for linux/%s, only for %q: %w", runtime.GOARCH, platforms,
			errors.ErrUnsupported)
	}
	return found[0], nil
}

func rank(d Descriptor) int {
	switch {
	case d.Platform == nil:
		return 2
	case d.Platform.Variant == "" || d.Platform.Variant == "v8" && d.Platform.Architecture == "arm64":
		return 0
	}
	return 1
}
