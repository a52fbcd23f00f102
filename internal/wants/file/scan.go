package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// errUnmounted means that the file system with the manifests is not mounted.
var errUnmounted = errors.New("was a mount point and is an empty directory now; mount the file system with the " +
	"manifests again")

// scan reads the whole directory.
func (p *Provider) scan(ctx context.Context, w *watcher) {
	err := w.arm()
	if p.unwatched = errors.Is(err, errNoWatch); err != nil && !p.unwatched {
		p.fail(ctx, err)
		return
	}
	d, err := openDir(p.config.Dir)
	if err != nil {
		p.fail(ctx, err)
		return
	}
	defer p.close(d)
	names, err := d.list()
	if err == nil && p.memory.mounted && !d.mounted && len(names) == 0 {
		err = errUnmounted
	}
	if err == nil {
		err = p.memory.setMounted(ctx, d.mounted)
	}
	if err != nil {
		p.fail(ctx, err)
		return
	}
	for name := range p.files {
		names[name] = false
	}
	p.readFiles(ctx, d, names)
}

// reread reads the named files, or the whole directory if another one may now be at the path.
func (p *Provider) reread(ctx context.Context, w *watcher, names map[string]bool) {
	d, err := openDir(p.config.Dir)
	if err != nil {
		p.scan(ctx, w)
		return
	}
	defer p.close(d)
	if d.mounted != p.memory.mounted {
		p.scan(ctx, w)
		return
	}
	p.readFiles(ctx, d, names)
}

// fail reports that the directory cannot be read. That changes no file's objects.
func (p *Provider) fail(ctx context.Context, err error) {
	p.failed = true
	p.postpone()
	for name, e := range p.odd {
		e.gone = time.Time{}
		e.busy = false
		p.mark(name, e)
	}
	p.commit(ctx)
	p.publish(err.Error() + "; all objects stay")
}

func (p *Provider) close(d *dir) {
	if err := d.root.Close(); err != nil {
		p.logger.Warn("close directory", "err", err)
	}
}

// readFiles reads the named files and delivers the changes.
func (p *Provider) readFiles(ctx context.Context, d *dir, names map[string]bool) {
	p.failed = false
	busy := false
	for name, whole := range names {
		e := p.files[name]
		if e == nil {
			e = &entry{}
			p.files[name] = e
		}
		p.load(d, name, whole)
		p.mark(name, e)
		busy = busy || e.busy
	}
	if busy {
		p.postpone()
	} else {
		p.retry = 0
	}
	general := p.commit(ctx)
	p.declareSynced()
	p.publish(general)
}

// postpone sets the pause before the next retry.
func (p *Provider) postpone() { p.retry = min(max(firstRetry, 2*p.retry), lastRetry) }

// load reads one file.
func (p *Provider) load(d *dir, name string, whole bool) {
	e := p.files[name]
	e.busy = false
	b, is, err := reading{
		root: d.root, name: name, known: e.stamp, whole: whole, quiet: p.config.Settle,
		lease: lease,
	}.read()
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.isMissing(name):
		p.handleMissing(name, e)
		return
	case errors.Is(err, errBusy):
		e.busy, e.problem, e.stamp = true, err.Error(), stamp{}
	case err != nil:
		e.problem, e.stamp = cause(err).Error(), is
	case b != nil:
		e.stamp = is
		p.decode(name, e, b)
	}
	e.gone = time.Time{}
}

// mark adds the file to those that need another look, or removes it from them.
func (p *Provider) mark(name string, e *entry) {
	if p.files[name] == e && (e.busy || e.problem != "" || !e.gone.IsZero()) {
		p.odd[name] = e
	} else {
		delete(p.odd, name)
	}
}

// handleMissing handles a missing file: it drops the file's objects if the file has been missing for Settle.
func (p *Provider) handleMissing(name string, e *entry) {
	if e.gone.IsZero() {
		e.gone = time.Now()
	}
	if len(e.objects) > 0 && time.Since(e.gone) < p.config.Settle {
		return
	}
	p.replace(name, nil)
	delete(p.files, name)
}

// decode replaces the file's objects if its new content is good.
func (p *Provider) decode(name string, e *entry, b []byte) {
	objects, err := manifest.Decode(name, b)
	if err == nil && len(objects) == 0 {
		err = errors.New("found no object, want at least one; to delete the file's objects, remove the file")
	}
	var all map[source.Key]runtime.Object
	if err == nil {
		all, err = byKey(objects)
	}
	if err != nil {
		e.problem = err.Error()
		return
	}
	e.problem, e.good = "", true
	p.replace(name, all)
}

// replace sets the file's objects; commit delivers them.
func (p *Provider) replace(name string, objects map[source.Key]runtime.Object) {
	e := p.files[name]
	p.memory.touch(name)
	for key := range e.objects {
		delete(p.having[key], name)
		p.touched[key] = true
	}
	e.objects = objects
	for key := range objects {
		if p.having[key] == nil {
			p.having[key] = map[string]bool{}
		}
		p.having[key][name] = true
		p.touched[key] = true
	}
}

// commit stores the changed files and delivers the changed objects to the catalog. It returns what
// went wrong, for people.
func (p *Provider) commit(ctx context.Context) (problem string) {
	if err := p.memory.store(ctx, p.files); err != nil {
		// Only a later start needs the stored objects, so the current ones are delivered anyway.
		problem = fmt.Sprintf("remember the last good manifests: %v", err)
	}
	var u source.Update
	for _, key := range slices.SortedFunc(maps.Keys(p.touched), source.Key.Compare) {
		obj := p.holder(key)
		switch {
		case obj == nil && p.applied[key] != nil:
			delete(p.applied, key)
			u.Delete = append(u.Delete, key)
		case obj != nil && obj != p.applied[key]:
			p.applied[key] = obj
			u.Put = append(u.Put, obj)
		}
		if len(p.having[key]) > 1 {
			p.shared[key] = true
		} else {
			delete(p.shared, key)
		}
	}
	clear(p.touched)
	if len(u.Put)+len(u.Delete) == 0 {
		return problem
	}
	if err := p.config.Catalog.Apply(Name, u); err != nil {
		problem = err.Error()
	}
	return problem
}

// holder returns the object of the first file that has it, or nil.
func (p *Provider) holder(key source.Key) runtime.Object {
	files := p.having[key]
	if len(files) == 0 {
		delete(p.having, key)
		return nil
	}
	return p.files[slices.Min(slices.Collect(maps.Keys(files)))].objects[key]
}

// declareSynced declares the source synced once it knows every file.
func (p *Provider) declareSynced() {
	if p.spoken {
		return
	}
	for _, e := range p.odd {
		// A file that was never good had no pods. That is only known if an earlier run's state was
		// stored and is readable.
		if e.problem != "" && !e.good && (e.busy || e.lost || p.memory.kv == nil) {
			return
		}
	}
	p.spoken = true
	p.config.Catalog.Synced(Name)
}

// duplicates lists the objects of files that an earlier file has too.
func (p *Provider) duplicates() []source.Problem {
	var problems []source.Problem
	for _, key := range slices.SortedFunc(maps.Keys(p.shared), source.Key.Compare) {
		names := slices.Sorted(maps.Keys(p.having[key]))
		for i := 1; i < len(names); i++ {
			problems = append(problems, source.Problem{
				Provider: Name, Where: names[i],
				Text: fmt.Sprintf("%s: file %s has it too and is used", key, names[0]),
			})
		}
	}
	return problems
}
