package file

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// patience ends a test that would hang; no test asserts a duration.
const patience = 2 * time.Minute

// rig is a provider that works on a directory.
type rig struct {
	t   *testing.T
	dir string
	p   *Provider

	mu      sync.Mutex
	objects map[string]runtime.Object // by name
	updates int
	deleted []string // names, in order
	synced  bool
	news    chan struct{}
}

// Apply and Synced make the rig a Catalog.

func (r *rig) Apply(provider string, u source.Update) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if provider != Name {
		r.t.Errorf("told by %q", provider)
	}
	r.updates++
	for _, k := range u.Delete {
		delete(r.objects, k.Name)
		r.deleted = append(r.deleted, k.Name)
	}
	for _, o := range u.Put {
		k, err := resolve.KeyOf(o)
		if err != nil {
			r.t.Error(err)
		}
		r.objects[k.Name] = o
	}
	r.tell()
	return nil
}

func (r *rig) Synced(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.synced {
		r.t.Error("synced twice")
	}
	r.synced = true
	r.tell()
}

func (r *rig) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// await waits until done returns true; it calls done with the rig locked.
func (r *rig) await(what string, done func() bool) {
	r.t.Helper()
	end := time.After(patience)
	for {
		changed := r.p.Changed()
		r.mu.Lock()
		ok := done()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.news:
		case <-changed:
		case <-end:
			r.t.Fatalf("%s: it did not happen; objects %v, deleted %v, synced %v, problems %v", what, r.names(), r.deleted, r.synced, r.p.Problems())
		}
	}
}

// has waits until exactly these objects exist.
func (r *rig) has(names ...string) {
	r.t.Helper()
	r.await("objects "+strings.Join(names, ", "), func() bool {
		return slices.Equal(slices.Sorted(maps.Keys(r.objects)), names)
	})
}

// value waits until the configMap's data.v has this value.
func (r *rig) value(name, want string) {
	r.t.Helper()
	r.await(name+" is "+want, func() bool {
		c, ok := r.objects[name].(*corev1.ConfigMap)
		return ok && c.Data["v"] == want
	})
}

// problem waits until a problem of the file, or of the directory for "", contains the text.
func (r *rig) problem(file, text string) {
	r.t.Helper()
	if file == "" {
		file = r.dir
	}
	r.await("problem "+text, func() bool {
		return slices.ContainsFunc(r.p.Problems(), func(p source.Problem) bool { return p.Where == file && strings.Contains(p.Text, text) })
	})
}

// fine waits until there is no problem.
func (r *rig) fine() {
	r.t.Helper()
	r.await("no problem", func() bool { return len(r.p.Problems()) == 0 })
}

func (r *rig) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.objects))
}

func (r *rig) kept() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.deleted) > 0 {
		r.t.Errorf("deleted: %v", r.deleted)
	}
}

// write writes a file in place.
func (r *rig) write(name, content string) {
	r.t.Helper()
	must(r.t, os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644))
}

// spoke reports whether the source has synced.
func (r *rig) spoke() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced
}

// settled waits until the provider has handled all earlier changes in the directory.
func (r *rig) settled() {
	r.t.Helper()
	r.mu.Lock()
	next := fmt.Sprintf("sentinel%d", r.updates)
	r.mu.Unlock()
	r.write("zz-sentinel.yaml", config(next, ""))
	r.await("sentinel", func() bool { return r.objects[next] != nil })
	r.mu.Lock()
	r.deleted = slices.DeleteFunc(r.deleted, func(name string) bool { return strings.HasPrefix(name, "sentinel") })
	r.mu.Unlock()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func config(name, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {v: %q}\n", name, value)
}

// start runs a provider until the test ends or stop is called.
func start(t *testing.T, c Config) (r *rig, stop func()) {
	t.Helper()
	r = &rig{t: t, dir: c.Dir, objects: map[string]runtime.Object{}, news: make(chan struct{}, 1)}
	c.Catalog = r
	r.p = New(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return r, stop
}

// begin starts a provider on a new directory with the files in it, and waits until it has read them.
func begin(t *testing.T, files map[string]string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	for name, content := range files {
		r.write(name, content)
	}
	// With this Settle, the provider gives up no vanished file during a test, unless the test sets another one.
	r, _ = start(t, Config{Dir: r.dir, Settle: time.Hour})
	r.await("synced", func() bool { return r.synced })
	return r
}

func TestFirstScanIsToldAtOnceAndThenSynced(t *testing.T) {
	r := begin(t, map[string]string{"a.yaml": config("a", "1") + config("a2", "1"), "b.yml": config("b", "1"), "c.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`})
	r.has("a", "a2", "b", "c")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.updates != 1 {
		t.Errorf("told in %d updates", r.updates)
	}
}

func TestOtherFilesAreIgnored(t *testing.T) {
	r := begin(t, map[string]string{
		".a.yaml": config("a", ""), "b.yaml~": config("b", ""), "c.yaml.swp": config("c", ""), "d": config("d", ""),
		"#e.yaml#": config("e", ""), "f.yaml.bak": config("f", ""), "g.yaml": config("g", ""),
	})
	r.write(".h.yaml", config("h", ""))
	r.settled()
	r.has("g", "sentinel1")
}

func TestNewChangedAndRemovedFiles(t *testing.T) {
	dir := t.TempDir()
	r, _ := start(t, Config{Dir: dir, Settle: time.Nanosecond})
	r.await("synced", func() bool { return r.synced })
	r.write("a.yaml", config("a", "1")+config("b", "1"))
	r.has("a", "b")
	r.write("a.yaml", config("a", "2"))
	r.has("a")
	r.value("a", "2")
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.has()
	must(t, os.WriteFile(filepath.Join(dir, "new.tmp"), []byte(config("c", "1")), 0o644))
	must(t, os.Rename(filepath.Join(dir, "new.tmp"), filepath.Join(dir, "c.yaml")))
	r.has("c")
	must(t, os.Rename(filepath.Join(dir, "c.yaml"), filepath.Join(dir, "d.yaml")))
	r.has("c")
	must(t, os.Remove(filepath.Join(dir, "d.yaml")))
	r.has()
	r.fine()
}

func TestHalfWrittenFileIsNotRead(t *testing.T) {
	r := begin(t, map[string]string{"a.yaml": config("a", "1") + config("b", "1")})
	f, err := os.OpenFile(filepath.Join(r.dir, "a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString(config("a", "2"))
	must(t, err)
	// A change that makes the provider read the whole directory must not make it read this file either.
	must(t, os.Symlink("nowhere", filepath.Join(r.dir, "..data")))
	r.problem("a.yaml", "being written")
	r.settled()
	r.value("a", "1")
	r.kept()
	_, err = f.WriteString(config("b", "2"))
	must(t, err)
	must(t, f.Close())
	r.value("b", "2")
	r.value("a", "2")
	r.fine()
	r.kept()
}

func TestFileBeingWrittenAtTheStartIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "a.yaml"))
	must(t, err)
	defer f.Close()
	_, err = f.WriteString(config("a", "1"))
	must(t, err)
	r, _ := start(t, Config{Dir: dir, KV: journal.NewMemory()})
	r.problem("a.yaml", "being written")
	if r.spoke() {
		t.Error("synced without the file")
	}
	must(t, f.Close())
	r.await("synced", func() bool { return r.synced })
	r.has("a")
	r.fine()
}

func TestOneBadFileHurtsNoOther(t *testing.T) {
	r := begin(t, map[string]string{"a.yaml": config("a", "1"), "b.yaml": config("b", "1")})
	for _, bad := range []string{"kind: [", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nfoo: 1\n", "", "# all gone\n", config("a", "2") + config("A", "2")} {
		r.write("a.yaml", bad)
		r.problem("a.yaml", "")
		r.settled()
		r.value("a", "1")
	}
	r.write("b.yaml", config("b", "2"))
	r.value("b", "2")
	r.value("a", "1")
	r.kept()
	r.write("a.yaml", config("a", "3"))
	r.value("a", "3")
	r.fine()
}

func TestProblemNamesFileAndLine(t *testing.T) {
	r := begin(t, nil)
	r.write("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndate: {}\n")
	r.problem("a.yaml", "a.yaml:4: document 1: configMap default/a: date: unknown field; did you mean data?")
}

func TestFirstFileByNameHolds(t *testing.T) {
	dir := t.TempDir()
	r := &rig{t: t, dir: dir}
	r.write("b.yaml", config("x", "b"))
	r, _ = start(t, Config{Dir: dir, Settle: time.Nanosecond})
	r.value("x", "b")
	r.write("a.yaml", config("x", "a"))
	r.value("x", "a")
	r.problem("b.yaml", "configMap default/x: file a.yaml has it too and is used")
	r.write("c.yaml", config("x", "c"))
	r.problem("c.yaml", "configMap default/x: file a.yaml has it too and is used")
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.value("x", "b")
	r.problem("c.yaml", "configMap default/x: file b.yaml has it too and is used")
	must(t, os.Remove(filepath.Join(dir, "c.yaml")))
	r.fine()
	r.kept()
}

// TestEditorThatReplacesAFile: the file is missing for a moment.
func TestEditorThatReplacesAFile(t *testing.T) {
	r := begin(t, map[string]string{"a.yaml": config("a", "1")})
	must(t, os.Rename(filepath.Join(r.dir, "a.yaml"), filepath.Join(r.dir, "a.yaml~")))
	r.settled()
	r.value("a", "1")
	r.write("a.yaml", config("a", "2"))
	r.value("a", "2")
	r.kept()
}

func TestDirectoryThatIsGoneKeepsEverything(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "manifests")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(config("a", "1")), 0o644))
	r, _ := start(t, Config{Dir: dir, Settle: time.Hour})
	r.has("a")
	must(t, os.Rename(dir, dir+".old"))
	r.problem("", "all objects stay")
	// The provider no longer watches the old directory.
	must(t, os.Remove(filepath.Join(dir+".old", "a.yaml")))
	must(t, os.MkdirAll(dir, 0o755))
	r.fine()
	r.write("b.yaml", config("b", "1"))
	r.has("a", "b") // a has been missing for a moment only
	r.write("a.yaml", config("a", "2"))
	r.value("a", "2")
	r.kept()
	must(t, os.RemoveAll(dir))
	r.problem("", "all objects stay")
	r.has("a", "b")
	r.kept()
}

func TestDirectoryThatIsAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.WriteFile(dir, nil, 0o644))
	r, _ := start(t, Config{Dir: dir})
	r.problem("", "all objects stay")
	must(t, os.Remove(dir))
	must(t, os.Mkdir(dir, 0o755))
	r.await("synced", func() bool { return r.synced })
	r.fine()
}

func TestDirectoryThatComesLater(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "etc", "csi-volmgr", "manifests")
	r, _ := start(t, Config{Dir: dir, KV: journal.NewMemory()})
	r.problem("", "no such file or directory; all objects stay")
	if r.spoke() {
		t.Error("synced without a directory")
	}
	must(t, os.MkdirAll(dir, 0o755))
	r.await("synced", func() bool { return r.synced })
	r.write("a.yaml", config("a", "1"))
	r.has("a")
	r.fine()
}

// TestDirectoryMadeWhileItIsLookedFor: the provider notices a directory made between the failed watch of it and the
// watch of its parent.
func TestDirectoryMadeWhileItIsLookedFor(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b", "manifests")
	var asked []string
	above, next, _, err := nearest(dir, func(d string) (int, error) {
		asked = append(asked, d)
		if d == top {
			must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
		}
		if _, err := os.Stat(d); err != nil {
			return -1, unix.ENOENT
		}
		return len(asked), nil
	})
	if err != nil || above != filepath.Dir(dir) || next != "manifests" {
		t.Errorf("watches %q for %q, %v; asked for %q", above, next, err, asked)
	}
}

// TestFailedLookupStartsTheWaitAnew: the provider stops counting the time that a file has been missing, and no longer
// looks for it.
func TestFailedLookupStartsTheWaitAnew(t *testing.T) {
	p := New(Config{Dir: t.TempDir(), Catalog: &rig{t: t}})
	must(t, p.restore(t.Context()))
	e := &entry{good: true, gone: time.Now().Add(-time.Hour), busy: true, problem: "x"}
	p.files["a.yaml"] = e
	p.mark("a.yaml", e)
	p.fail(t.Context(), errors.New("gone"))
	if !e.gone.IsZero() || len(p.due()) > 0 || p.files["a.yaml"] != e {
		t.Errorf("got %+v, due %v", e, p.due())
	}
}

// TestMountedConfigMap: its files are links through ..data, which each update replaces.
func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(n, value string) {
		must(t, os.Mkdir(filepath.Join(dir, "..v"+n), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "..v"+n, "a.yaml"), []byte(config("a", value)), 0o644))
		must(t, os.Symlink("..v"+n, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("1", "1")
	must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	r, _ := start(t, Config{Dir: dir, Settle: time.Hour})
	r.value("a", "1")
	version("2", "2")
	r.value("a", "2")
	must(t, os.RemoveAll(filepath.Join(dir, "..v2")))
	r.settled()
	must(t, os.Remove(filepath.Join(dir, "..data")))
	r.problem("a.yaml", "no such file")
	r.kept()
}

func TestWhatIsNoFileOfTheDirectoryIsRefused(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.yaml")
	must(t, os.WriteFile(out, []byte(config("out", "")), 0o644))
	dir := t.TempDir()
	must(t, os.Symlink(out, filepath.Join(dir, "link.yaml")))
	must(t, os.Mkdir(filepath.Join(dir, "dir.yaml"), 0o755))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "good.yaml"), []byte(config("good", "")), 0o644))
	r, _ := start(t, Config{Dir: dir, KV: journal.NewMemory()})
	r.await("synced", func() bool { return r.synced })
	r.has("good")
	r.problem("link.yaml", "path escapes from parent")
	r.problem("dir.yaml", "not a regular file")
	r.problem("pipe.yaml", "not a regular file")
}

func TestFileTooLarge(t *testing.T) {
	r := begin(t, map[string]string{"a.yaml": config("a", "1")})
	r.write("a.yaml", config("a", "2")+strings.Repeat("#", 4<<20))
	r.problem("a.yaml", "want at most 4194304")
	r.value("a", "1")
}

const withSecret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n"

// TestBrokenFileAtTheStartIsAsItWasWhenLastGood: rule 5 across a restart.
func TestBrokenFileAtTheStartIsAsItWasWhenLastGood(t *testing.T) {
	dir, kv := t.TempDir(), journal.NewMemory()
	r := &rig{t: t, dir: dir}
	r.write("a.yaml", config("a", "1")+withSecret)
	r.write("b.yaml", config("b", "1"))
	r, stop := start(t, Config{Dir: dir, KV: kv})
	r.has("a", "b", "s")
	stop()
	values, err := kv.LoadBucket(t.Context(), bucket)
	must(t, err)
	for name, value := range values.Sound {
		if strings.Contains(string(value), "hunter2") || strings.Contains(string(value), "aHVudGVyMg") || strings.Contains(string(value), "Secret") {
			t.Errorf("%s: the secret is kept: %s", name, value)
		}
	}
	r.write("a.yaml", "kind: [")
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	r.write("never-good.yaml", "kind: [")
	r, stop = start(t, Config{Dir: dir, KV: kv, Settle: time.Nanosecond})
	r.await("synced", func() bool { return r.synced })
	r.has("a")
	r.problem("a.yaml", "not YAML")
	r.problem("never-good.yaml", "not YAML")
	r.write("a.yaml", config("a", "2"))
	r.value("a", "2")
	stop()
	if values, err = kv.LoadBucket(t.Context(), bucket); err != nil || values.Sound["b.yaml"] != nil || values.Sound["a.yaml"] == nil {
		t.Errorf("kept: %v, %v", slices.Sorted(maps.Keys(values.Sound)), err)
	}
}

func TestWithoutMemoryABadFileIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	r := &rig{t: t, dir: dir}
	r.write("a.yaml", "kind: [")
	r.write("b.yaml", config("b", "1"))
	r, _ = start(t, Config{Dir: dir})
	r.has("b")
	r.problem("a.yaml", "not YAML")
	if r.spoke() {
		t.Error("synced")
	}
	r.write("a.yaml", config("a", "1"))
	r.await("synced", func() bool { return r.synced })
}

func TestUnreadableMemoryOfABadFileIsWaitedFor(t *testing.T) {
	dir, kv := t.TempDir(), journal.NewMemory()
	must(t, kv.CommitBucket(t.Context(), bucket, map[string][]byte{"a.yaml": []byte(`{"fromTheFuture": 1}`), "b.yaml": []byte("?")}))
	r := &rig{t: t, dir: dir}
	r.write("a.yaml", "kind: [")
	r.write("b.yaml", config("b", "1"))
	r, _ = start(t, Config{Dir: dir, KV: kv})
	r.has("b")
	r.problem("a.yaml", "not YAML")
	if r.spoke() {
		t.Error("synced")
	}
	r.write("a.yaml", config("a", "1"))
	r.await("synced", func() bool { return r.synced })
}

// failing is a KV whose writes fail.
type failing struct{ KV }

func (failing) CommitBucket(context.Context, string, map[string][]byte) error {
	return errors.New("disk full")
}

// torn is a journal with unreadable values.
type torn struct {
	*journal.Memory
	unreadable map[string]string
}

func (j torn) LoadBucket(ctx context.Context, bucket string) (state.Values, error) {
	v, err := j.Memory.LoadBucket(ctx, bucket)
	v.Unreadable = j.unreadable
	return v, err
}

// An unreadable value in the journal does not stop the start. For a file, its last good content is lost; for the
// directory, an empty one proves nothing.
//
// Faults: A184.
func TestAValueThatTheJournalCannotReadIsAMemoryLost(t *testing.T) {
	m := memory{kv: torn{journal.NewMemory(), map[string]string{"a.yaml": "checksum mismatch", dirKey: "checksum mismatch"}}}
	files, lost, err := m.load(t.Context())
	if err != nil || len(files) != 0 || len(lost) != 1 || lost["a.yaml"] == nil || !m.mounted {
		t.Errorf("%v, files %v, lost %v, mounted %v", err, files, lost, m.mounted)
	}
}

func TestMemoryThatCannotBeWrittenIsTold(t *testing.T) {
	dir := t.TempDir()
	r := &rig{t: t, dir: dir}
	r.write("a.yaml", config("a", "1"))
	r, _ = start(t, Config{Dir: dir, KV: failing{journal.NewMemory()}})
	r.problem("", "remember the last good manifests: disk full")
	r.has("a")
}

// TestUnmountedDirectoryKeepsEverything: an empty mount point proves nothing.
func TestUnmountedDirectoryKeepsEverything(t *testing.T) {
	dir, kv := t.TempDir(), journal.NewMemory()
	mount := func() {
		must(t, unix.Mount("test", dir, "tmpfs", 0, ""))
		must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(config("a", "1")), 0o644))
	}
	mount()
	r, stop := start(t, Config{Dir: dir, KV: kv, Settle: time.Nanosecond})
	r.has("a")
	// MNT_DETACH, since the provider may be reading the directory. The kernel reports the unmount only if the
	// provider keeps no file of it open.
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	r.problem("", "was a mount point and is an empty directory now")
	r.has("a")
	stop()

	r, _ = start(t, Config{Dir: dir, KV: kv, Settle: time.Nanosecond})
	r.problem("", "was a mount point and is an empty directory now")
	r.has("a")
	if r.spoke() {
		t.Error("synced")
	}
	r.kept()
	// A manifest in the directory proves that the directory itself is meant.
	r.write("b.yaml", config("b", "1"))
	r.await("synced", func() bool { return r.synced })
	r.has("b")
}

// The kernel reports no event for a mount over a directory.
func TestTheDirectoryIsReadAgainWhenItsFileSystemIsMounted(t *testing.T) {
	dir, kv := t.TempDir(), journal.NewMemory()
	must(t, (&memory{kv: kv}).setMounted(t.Context(), true))
	r, _ := start(t, Config{Dir: dir, KV: kv, Settle: time.Nanosecond})
	r.problem("", "was a mount point and is an empty directory now")
	must(t, unix.Mount("test", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(config("a", "1")), 0o644))
	r.has("a")
	r.await("synced", func() bool { return r.synced })
	r.fine()
}

// once is a journal whose first write fails.
type once struct {
	*journal.Memory
	failed *bool
}

func (j once) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	if !*j.failed {
		*j.failed = true
		return errors.New("disk full")
	}
	return j.Memory.CommitBucket(ctx, bucket, changes)
}

// If the journal does not know that the directory was a mount point, the next start takes its empty mount point for
// a directory whose manifests were removed, and unmounts the volumes of all pods.
func TestThatTheDirectoryIsAMountPointIsWrittenAgain(t *testing.T) {
	dir, kv := t.TempDir(), once{journal.NewMemory(), new(bool)}
	must(t, unix.Mount("test", dir, "tmpfs", 0, ""))
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(config("a", "1")), 0o644))
	r, stop := start(t, Config{Dir: dir, KV: kv, Settle: time.Nanosecond})
	r.has("a")
	r.fine()
	stop()
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	r, _ = start(t, Config{Dir: dir, KV: kv, Settle: time.Nanosecond})
	r.problem("", "was a mount point and is an empty directory now")
	r.has("a")
	r.kept()
}

func TestOverflowOfEventsReadsTheWholeDirectory(t *testing.T) {
	event := func(wd int32, mask uint32, name string) []byte {
		b := make([]byte, unix.SizeofInotifyEvent+16)
		binary.NativeEndian.PutUint32(b[0:], uint32(wd))
		binary.NativeEndian.PutUint32(b[4:], mask)
		binary.NativeEndian.PutUint32(b[12:], 16)
		copy(b[unix.SizeofInotifyEvent:], name)
		return b
	}
	w := &watcher{here: 1, above: 2, next: "manifests"}
	for _, test := range []struct {
		event  []byte
		rescan bool
		names  map[string]bool
	}{
		{event(-1, unix.IN_Q_OVERFLOW, ""), true, map[string]bool{}},
		{event(1, unix.IN_UNMOUNT, ""), true, map[string]bool{}},
		{event(1, unix.IN_MOVE_SELF, ""), true, map[string]bool{}},
		{event(1, unix.IN_MOVED_TO, "..data"), true, map[string]bool{}},
		{event(1, unix.IN_CREATE, "a.yaml"), false, map[string]bool{"a.yaml": false}},
		{event(1, unix.IN_CLOSE_WRITE, "a.yaml"), false, map[string]bool{"a.yaml": true}},
		{event(1, unix.IN_CLOSE_WRITE, ".a.yaml"), false, map[string]bool{}},
		{event(2, unix.IN_CREATE, "manifests"), true, map[string]bool{}},
		{event(2, unix.IN_CREATE, "other"), false, map[string]bool{}},
		{event(3, unix.IN_IGNORED, ""), false, map[string]bool{}},
		{append(event(1, unix.IN_CREATE, "a.yaml"), event(1, unix.IN_CLOSE_WRITE, "a.yaml")...), false, map[string]bool{"a.yaml": true}},
		{append(event(1, unix.IN_CLOSE_WRITE, "a.yaml"), event(1, unix.IN_ATTRIB, "a.yaml")...), false, map[string]bool{"a.yaml": true}},
	} {
		if got := w.parse(test.event); got.rescan != test.rescan || !maps.Equal(got.names, test.names) {
			t.Errorf("%q: got %+v, want %+v", test.event, got, test)
		}
	}
}

// TestFileSystemWithoutLeases: without leases, a file is whole if an event says so, or if no process has changed it
// for a while.
func TestFileSystemWithoutLeases(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("x"), 0o644))
	d, err := openDir(dir)
	must(t, err)
	defer d.root.Close()
	unleased := func(*os.File) error { return unix.EINVAL }
	for _, test := range []struct {
		whole bool
		quiet time.Duration
		busy  bool
	}{{true, time.Hour, false}, {false, time.Hour, true}, {false, time.Nanosecond, false}} {
		b, _, err := reading{root: d.root, name: "a.yaml", whole: test.whole, quiet: test.quiet, lease: unleased}.read()
		if errors.Is(err, errBusy) != test.busy || !test.busy && string(b) != "x" {
			t.Errorf("%+v: got %q, %v", test, b, err)
		}
	}
}

func TestKnownVersionIsNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("x"), 0o644))
	d, err := openDir(dir)
	must(t, err)
	defer d.root.Close()
	_, known, err := reading{root: d.root, name: "a.yaml", lease: lease}.read()
	must(t, err)
	if b, again, err := (reading{root: d.root, name: "a.yaml", known: known, lease: lease}).read(); b != nil || again != known || err != nil {
		t.Errorf("got %q, %+v, %v", b, again, err)
	}
}
