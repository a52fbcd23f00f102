package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// ErrNotFound means that no layout has an image.
var ErrNotFound = errors.New("no layout has the image")

// maxLayouts bounds how many entries of a directory tree are examined.
const maxLayouts = 10_000

// Find returns the image with the reference from the layouts at or below the
// directories: layout directories, and archives whose names end in .tar. An entry of a
// layout has its name in an annotation. If the annotation is only a tag, the layout's
// path relative to dirs is the name.
//
// Find skips broken layouts and reports them only if no other one has the image. It
// fails if two layouts have different images of the same name.
func Find(ctx context.Context, dirs []string, ref Reference) (*Image, error) {
	s := search{ref: ref}
	for _, dir := range dirs {
		if err := s.walk(ctx, dir); err != nil {
			return nil, errors.Join(err, s.drop())
		}
	}
	if s.found == nil {
		if s.broken != nil {
			return nil, fmt.Errorf("%s: %w below %q; broken layouts: %w", ref, ErrNotFound, dirs, s.broken)
		}
		return nil, fmt.Errorf("%s: %w below %q", ref, ErrNotFound, dirs)
	}
	return s.found, nil
}

type search struct {
	ref    Reference
	found  *Image
	entry  Digest // of the index entry that led to found
	broken error
	seen   int
}

func (s *search) drop() error {
	if s.found == nil {
		return nil
	}
	return s.found.Close()
}

func (s *search) walk(ctx context.Context, dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			s.broken = errors.Join(s.broken, err)
			return nil
		}
		if s.seen++; s.seen > maxLayouts {
			return fmt.Errorf("more than %d files below the image directories", maxLayouts)
		}
		if !e.IsDir() && (!e.Type().IsRegular() || filepath.Ext(path) != ".tar") {
			return nil
		}
		l, ok, err := openLayout(path, e.IsDir())
		if err != nil {
			s.broken = errors.Join(s.broken, err)
		}
		if !ok {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return errors.Join(err, l.store.Close())
		}
		if err := s.look(l, strings.TrimSuffix(filepath.ToSlash(rel), ".tar")); err != nil {
			return err
		}
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// look searches one layout for the image, and closes the layout unless it has the
// image.
func (s *search) look(l layout, place string) error {
	var all index
	if err := l.document(indexFile, &all); err != nil {
		s.broken = errors.Join(s.broken, err)
		return l.store.Close()
	}
	for _, d := range s.candidates(l, all) {
		if !s.names(d, place) {
			continue
		}
		if s.found != nil {
			if s.entry == d.Digest {
				continue
			}
			return errors.Join(fmt.Errorf("%s: it is %s in %s but %s in %s; remove one of them", s.ref, s.entry,
				s.found.Layout, d.Digest, l.path), l.store.Close())
		}
		image, err := l.image(d, 0)
		if err != nil {
			s.broken = errors.Join(s.broken, err)
			continue
		}
		s.found, s.entry = image, d.Digest
	}
	if s.found != nil && s.found.layout == l {
		return nil
	}
	return l.store.Close()
}

// candidates returns the entries of a layout's index. If the reference has a digest, it
// also returns the entries of nested indices, since the digest may be that of one
// platform's image.
func (s *search) candidates(l layout, all index) []Descriptor {
	list := all.Manifests
	if s.ref.Digest == "" {
		return list
	}
	for _, d := range all.Manifests {
		if d.MediaType != typeIndex && d.MediaType != typeList {
			continue
		}
		var inner index
		if err := l.read(d, &inner); err != nil {
			s.broken = errors.Join(s.broken, err)
			continue
		}
		list = append(list, inner.Manifests...)
	}
	return list
}

// names reports whether an entry of an index is the wanted image.
func (s *search) names(d Descriptor, place string) bool {
	if s.ref.Digest != "" {
		return d.Digest == s.ref.Digest
	}
	for _, name := range []string{d.Annotations[nameByContainerd], d.Annotations[nameByOCI]} {
		if name == "" {
			continue
		}
		if !strings.ContainsAny(name, "/:@") {
			name = place + ":" + name
		}
		if r, err := ParseReference(name); err == nil && r.Name == s.ref.Name && r.Tag == s.ref.Tag {
			return true
		}
	}
	return false
}
