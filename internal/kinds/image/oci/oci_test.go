package oci_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/imagetest"
)

func TestReferences(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for text, want := range map[string]string{
		"busybox":                             "docker.io/library/busybox:latest",
		"busybox:1.36":                        "docker.io/library/busybox:1.36",
		"team/app":                            "docker.io/team/app:latest",
		"index.docker.io/busybox":             "docker.io/library/busybox:latest",
		"localhost/app":                       "localhost/app:latest",
		"registry.example.com:5000/a/b":       "registry.example.com:5000/a/b:latest",
		"registry.example.com/a@" + digest:    "registry.example.com/a@" + digest,
		"registry.example.com/a:v1@" + digest: "registry.example.com/a:v1@" + digest,
		"[::1]:5000/a":                        "[::1]:5000/a:latest",
	} {
		if r, err := oci.ParseReference(text); err != nil || r.String() != want {
			t.Errorf("%s: got %s, %v, want %s", text, r, err, want)
		}
	}
	for _, text := range []string{
		"", "UPPER", "a//b", "../a", "a/../b", "a b", "a:", "a:-x", "a@", "a@sha256:abc", "a@md5:" + strings.Repeat("a", 32), "/a", "a/", "host.example/",
		"a\x00", "a\n", strings.Repeat("a", 513), "a@sha256:../../../../etc/passwd", "-host.example/a", "a;b", "$(a)",
	} {
		if r, err := oci.ParseReference(text); !errors.Is(err, oci.ErrReference) {
			t.Errorf("%.40q: got %s, %v", text, r, err)
		}
	}
}

// find looks for a reference below dirs and returns the content of the image's
// first layer.
func find(t *testing.T, text string, dirs ...string) (string, error) {
	t.Helper()
	ref, err := oci.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	image, err := oci.Find(t.Context(), dirs, ref)
	if err != nil {
		return "", err
	}
	defer image.Close()
	b, err := image.Open(image.Layers[0])
	if err != nil {
		return "", err
	}
	defer b.Close()
	content, err := io.ReadAll(b)
	return string(content), errors.Join(err, b.Verify())
}

// plain adds an image whose one layer is no archive, for tests that only look images
// up.
func plain(l *imagetest.Layout, content string) oci.Descriptor {
	l.Helper()
	return l.Manifest([]oci.Digest{imagetest.DigestOf([]byte(content))}, l.Blob(imagetest.TAR, []byte(content)))
}

// Find finds an image by the name in its layout, by the layout's path if the layout has
// only a tag, and by its digest, in directories and archives.
func TestImagesAreFound(t *testing.T) {
	dir := t.TempDir()
	full := imagetest.New(t, filepath.Join(dir, "some", "layout"))
	full.Add("registry.example.com/full:v1", plain(full, "full"))
	docker := full.Add("", plain(full, "docker"))
	docker.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/tool:v2", imagetest.RefName: "v2"}
	full.Index(full.Add("registry.example.com/full:v1", plain(full, "full")), docker)
	place := imagetest.New(t, filepath.Join(dir, "registry.example.com", "team", "app"))
	byTag := place.Add("v3", plain(place, "place"))
	packed := imagetest.New(t, t.TempDir())
	packed.Add("v4", plain(packed, "packed"))
	packed.Archive(filepath.Join(dir, "registry.example.com", "packed.tar"))
	for text, want := range map[string]string{
		"registry.example.com/full:v1": "full", "tool:v2": "docker", "registry.example.com/team/app:v3": "place",
		"registry.example.com/packed:v4": "packed", "other.example.com/any@" + string(byTag.Digest): "place",
	} {
		if got, err := find(t, text, t.TempDir(), dir); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"registry.example.com/full:v2", "v3", "registry.example.com/team/app", "full:v1"} {
		if got, err := find(t, text, dir); !errors.Is(err, oci.ErrNotFound) {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := oci.Find(ended, []string{dir}, oci.Reference{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: got %v", err)
	}
}

// From an index, Find takes the image for this platform and no attestation. A digest
// may name the index or the image.
func TestPlatforms(t *testing.T) {
	l := imagetest.New(t, t.TempDir())
	arch := runtime.GOARCH
	entry := func(content, platform string) oci.Descriptor {
		d := plain(l, content)
		if err := json.Unmarshal([]byte(platform), &d.Platform); err != nil {
			t.Fatal(err)
		}
		return d
	}
	other := entry("other", `{"os": "linux", "architecture": "s390x"}`)
	mine := entry("mine", `{"os": "linux", "architecture": "`+arch+`"}`)
	special := entry("special", `{"os": "linux", "architecture": "`+arch+`", "variant": "v99"}`)
	windows := entry("windows", `{"os": "windows", "architecture": "`+arch+`"}`)
	proof := entry("attestation", `null`)
	proof.Annotations = map[string]string{"vnd.docker.reference.type": "attestation-manifest"}
	list := func(d ...oci.Descriptor) oci.Descriptor {
		return l.JSON(imagetest.Index, map[string]any{"mediaType": imagetest.Index, "manifests": d})
	}
	all := l.Add("all", list(proof, other, windows, special, mine))
	l.Add("nested", list(list(mine)))
	l.Add("special", list(other, special))
	l.Add("none", list(other, windows))
	l.Add("deep", list(list(list(list(list(mine))))))
	root := filepath.Dir(l.Dir)
	name := "localhost/" + filepath.Base(l.Dir) + ":"
	if err := os.Symlink(l.Dir, filepath.Join(root, "localhost")); err != nil { // Find follows no links
		t.Fatal(err)
	}
	at := filepath.Join(root, "images")
	if err := errors.Join(os.MkdirAll(filepath.Join(at, "localhost"), 0o755), os.Rename(l.Dir, filepath.Join(at, "localhost", filepath.Base(l.Dir)))); err != nil {
		t.Fatal(err)
	}
	for tag, want := range map[string]string{"all": "mine", "nested": "mine", "special": "special"} {
		if got, err := find(t, name+tag, at); err != nil || got != want {
			t.Errorf("%s: got %q, %v", tag, got, err)
		}
	}
	for digest, want := range map[oci.Digest]string{all.Digest: "mine", other.Digest: "other"} {
		if got, err := find(t, "any@"+string(digest), at); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", digest, got, err, want)
		}
	}
	for _, tag := range []string{"none", "deep"} {
		if got, err := find(t, name+tag, at); !errors.Is(err, oci.ErrNotFound) || !strings.Contains(err.Error(), "broken layouts") {
			t.Errorf("%s: got %q, %v, want that it says why", tag, got, err)
		}
	}
}

// If two layouts have different images of one name, Find does not choose between them.
// It does if the images are the same.
func TestNameThatStandsForTwoImages(t *testing.T) {
	dir := t.TempDir()
	a, b := imagetest.New(t, filepath.Join(dir, "a")), imagetest.New(t, filepath.Join(dir, "b"))
	a.Add("localhost/x:v1", plain(a, "one"))
	b.Add("localhost/x:v1", plain(b, "one"))
	if got, err := find(t, "localhost/x:v1", dir); err != nil || got != "one" {
		t.Errorf("the same: got %q, %v", got, err)
	}
	c := imagetest.New(t, filepath.Join(dir, "c"))
	c.Add("localhost/x:v1", plain(c, "two"))
	if got, err := find(t, "localhost/x:v1", dir); err == nil || !strings.Contains(err.Error(), "remove one of them") {
		t.Errorf("another: got %q, %v", got, err)
	}
}

// A broken layout does not keep a pod from an intact one. If no intact one is left, the
// error says what is wrong.
func TestBrokenLayouts(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(l *imagetest.Layout, d, layer oci.Descriptor) error{
		"index": func(l *imagetest.Layout, _, _ oci.Descriptor) error {
			return os.WriteFile(l.Dir+"/index.json", []byte("{"), 0o600)
		},
		"no index": func(l *imagetest.Layout, _, _ oci.Descriptor) error { return os.Remove(l.Dir + "/index.json") },
		"version": func(l *imagetest.Layout, _, _ oci.Descriptor) error {
			return os.WriteFile(l.Dir+"/oci-layout", []byte(`{"imageLayoutVersion": "9"}`), 0o600)
		},
		"manifest's bytes": func(l *imagetest.Layout, d, _ oci.Descriptor) error { l.Spoil(d.Digest); return nil },
		"manifest is gone": func(l *imagetest.Layout, d, _ oci.Descriptor) error { return os.Remove(blob(l, d)) },
		"index is huge":    func(l *imagetest.Layout, _, _ oci.Descriptor) error { return os.Truncate(l.Dir+"/index.json", 1<<30) },
		"manifest is longer": func(l *imagetest.Layout, d, _ oci.Descriptor) error {
			return os.Truncate(blob(l, d), d.Size+1)
		},
		"link out": func(l *imagetest.Layout, d, _ oci.Descriptor) error {
			return errors.Join(os.Remove(blob(l, d)), os.Symlink(outside, blob(l, d)))
		},
		"pipe": func(l *imagetest.Layout, d, _ oci.Descriptor) error {
			return errors.Join(os.Remove(blob(l, d)), unix.Mkfifo(blob(l, d), 0o600))
		},
		"digest": func(l *imagetest.Layout, d, _ oci.Descriptor) error {
			d.Digest = "sha256:../../../../../../" + oci.Digest(outside)
			l.Index(named(d))
			return nil
		},
		"media type": func(l *imagetest.Layout, d, _ oci.Descriptor) error {
			d.MediaType = "text/plain"
			l.Index(named(d))
			return nil
		},
		"no layers": func(l *imagetest.Layout, _, _ oci.Descriptor) error { l.Index(named(l.Manifest(nil))); return nil },
		"other diff_ids": func(l *imagetest.Layout, _, layer oci.Descriptor) error {
			l.Index(named(l.Manifest(nil, layer)))
			return nil
		},
	} {
		dir := t.TempDir()
		l := imagetest.New(t, filepath.Join(dir, "a"))
		layer := l.Blob(imagetest.TAR, []byte("one"))
		d := named(l.Manifest([]oci.Digest{imagetest.DigestOf([]byte("one"))}, layer))
		l.Index(d)
		if err := spoil(l, d, layer); err != nil {
			t.Fatal(err)
		}
		if got, err := find(t, "localhost/x:v1", dir); !errors.Is(err, oci.ErrNotFound) || !strings.Contains(err.Error(), "broken layouts") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		whole := imagetest.New(t, filepath.Join(dir, "b"))
		whole.Add("localhost/x:v1", plain(whole, "whole"))
		if got, err := find(t, "localhost/x:v1", dir); err != nil || got != "whole" {
			t.Errorf("%s, with another: got %q, %v", name, got, err)
		}
	}
}

func named(d oci.Descriptor) oci.Descriptor {
	d.Annotations = map[string]string{imagetest.RefName: "localhost/x:v1"}
	return d
}

func blob(l *imagetest.Layout, d oci.Descriptor) string {
	return filepath.Join(l.Dir, "blobs", "sha256", d.Digest.Hex())
}

// A layer is valid only if it is complete and unchanged, in either form of a layout.
func TestLayersAreVerified(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"changed": func(path string) error { return os.WriteFile(path, []byte("two"), 0o600) },
		"shorter": func(path string) error { return os.Truncate(path, 2) },
		"longer":  func(path string) error { return os.Truncate(path, 4) },
		"gone":    os.Remove,
	} {
		dir := t.TempDir()
		l := imagetest.New(t, filepath.Join(dir, "a"))
		l.Add("localhost/x:v1", plain(l, "one"))
		if err := spoil(blob(l, oci.Descriptor{Digest: imagetest.DigestOf([]byte("one"))})); err != nil {
			t.Fatal(err)
		}
		if got, err := find(t, "localhost/x:v1", dir); err == nil || name == "changed" && !errors.Is(err, oci.ErrDigest) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		l.Archive(filepath.Join(dir, "b.tar"))
		if err := os.RemoveAll(l.Dir); err != nil {
			t.Fatal(err)
		}
		if got, err := find(t, "localhost/x:v1", dir); err == nil {
			t.Errorf("%s, in an archive: got %q", name, got)
		}
	}
}
