package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	secretValue = "hunter2"
	objects     = `
{apiVersion: v1, kind: Pod, metadata: {name: web}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}}
---
{apiVersion: v1, kind: Secret, metadata: {name: token}, stringData: {password: ` + secretValue + `}}
`
)

func key(kind, name string) source.Key {
	return source.Key{Kind: kind, Namespace: "default", Name: name}
}

var all = []source.Key{key("PersistentVolumeClaim", "data"), key("Pod", "web"), key("Secret", "token")}

// catalog keeps the updates that it receives.
type catalog struct {
	objects map[source.Key]runtime.Object
	synced  int
	// unreadable has what the provider cannot read.
	unreadable map[source.Key]string
	// durable, if set, is called before anything takes effect.
	durable func(source.Update)
}

func (c *catalog) Apply(provider string, u source.Update) error {
	if provider != "api" {
		return errors.New("told by " + provider)
	}
	if !u.Checked {
		return errors.New("told to check again")
	}
	if c.durable != nil {
		c.durable(u)
	}
	for k, why := range u.Unreadable {
		c.unreadable[k] = why
	}
	for _, k := range u.Delete {
		delete(c.objects, k)
	}
	for _, o := range u.Put {
		m := o.(interface{ GetName() string })
		c.objects[key(o.GetObjectKind().GroupVersionKind().Kind, m.GetName())] = o
	}
	return nil
}

func (c *catalog) Synced(string) { c.synced++ }

func (c *catalog) keys() []source.Key {
	var keys []source.Key
	for k := range c.objects {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, source.Key.Compare)
	return keys
}

func start(t *testing.T, kv api.KV, dir string) (*api.Provider, *catalog) {
	t.Helper()
	c := &catalog{objects: map[source.Key]runtime.Object{}, unreadable: map[source.Key]string{}}
	p := api.New(api.Config{KV: kv, Catalog: c, SecretsDir: dir})
	if err := p.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p, c
}

func decode(t *testing.T, text string) []runtime.Object {
	t.Helper()
	o, err := manifest.Decode("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func apply(t *testing.T, p *api.Provider, text string) []api.Result {
	t.Helper()
	r, err := p.Apply(t.Context(), decode(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A client may apply objects before the daemon has loaded the stored ones. Its answer still says which fields are
// immutable, and which objects were there already.
func TestAClientMayBeQuickerThanLoad(t *testing.T) {
	kv, dir := journal.NewMemory(), t.TempDir()
	const settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, immutable: true, data: {a: "%s"}}`
	p, _ := start(t, kv, dir)
	apply(t, p, fmt.Sprintf(settings, "1"))
	c := &catalog{objects: map[source.Key]runtime.Object{}}
	p = api.New(api.Config{KV: kv, Catalog: c, SecretsDir: dir})
	if _, err := p.Apply(t.Context(), decode(t, fmt.Sprintf(settings, "2"))); !errors.Is(err, api.ErrImmutable) {
		t.Errorf("an immutable object is changed: %v, want ErrImmutable", err)
	}
	if r := apply(t, p, fmt.Sprintf(settings, "1")); r[0].Change != api.Unchanged {
		t.Errorf("the same again is %s", r[0].Change)
	}
	if err := p.Load(t.Context()); err != nil || len(c.objects) != 1 || c.synced != 1 {
		t.Errorf("loaded: %v, %v, synced %d", err, c.keys(), c.synced)
	}
}

func TestAppliedObjectsSurviveARestart(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "state.db"), filepath.Join(t.TempDir(), "a", "secrets")
	kv, err := journal.OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	p, c := start(t, kv, dir)
	if c.synced != 1 {
		t.Errorf("an empty source has not spoken")
	}
	for _, r := range apply(t, p, objects) {
		if r.Change != api.Created {
			t.Errorf("got %+v", r)
		}
	}
	if !slices.Equal(c.keys(), all) {
		t.Errorf("in effect: %v", c.keys())
	}
	if err := kv.Close(); err != nil {
		t.Fatal(err)
	}
	if kv, err = journal.OpenBolt(path); err != nil {
		t.Fatal(err)
	}
	defer kv.Close()
	p, c = start(t, kv, dir)
	if !slices.Equal(c.keys(), all) || c.synced != 1 {
		t.Errorf("after a restart: %v, synced %d", c.keys(), c.synced)
	}
	if s := c.objects[all[2]].(*corev1.Secret); string(s.Data["password"]) != secretValue {
		t.Errorf("got %v", s)
	}
	for _, k := range all {
		if err := p.Delete(t.Context(), k); err != nil {
			t.Error(err)
		}
	}
	if len(c.keys()) != 0 {
		t.Errorf("after delete: %v", c.keys())
	}
	if _, c = start(t, kv, dir); len(c.keys()) != 0 {
		t.Errorf("after delete and restart: %v", c.keys())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestResultSaysWhatChanged(t *testing.T) {
	p, c := start(t, journal.NewMemory(), "")
	apply(t, p, objects)
	for _, r := range apply(t, p, objects) {
		if r.Change != api.Unchanged {
			t.Errorf("got %+v", r)
		}
	}
	r := apply(t, p, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {volumeName: v}}")
	if len(r) != 1 || r[0].Change != api.Changed || r[0].Key != all[0] || c.objects[all[0]].(*corev1.PersistentVolumeClaim).Spec.VolumeName != "v" {
		t.Errorf("got %+v", r)
	}
}

// TestSecretIsInItsOwnFileOnly: rule 7.
func TestSecretIsInItsOwnFileOnly(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "state.db"), filepath.Join(t.TempDir(), "secrets")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	kv, err := journal.OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer kv.Close()
	p, _ := start(t, kv, dir)
	apply(t, p, objects)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	if err := kv.Close(); err != nil { // from here on, no file in the directory changes
		t.Fatal(err)
	}
	files := 0
	check := func(root string, holds bool) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			// The value is base64 in JSON.
			if found := bytes.Contains(b, []byte("aHVudGVyMg==")) || bytes.Contains(b, []byte(secretValue)); found != holds {
				t.Errorf("%s: the secret is there: %v", path, found)
			}
			if info, err := d.Info(); err != nil || holds && info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
			files++
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	check(dir, true)
	check(filepath.Dir(path), false)
	if files < 2 {
		t.Errorf("looked at %d files", files)
	}
}

func TestWithoutADirectorySecretsAreInMemoryOnly(t *testing.T) {
	kv := journal.NewMemory()
	p, c := start(t, kv, "")
	apply(t, p, objects)
	if !slices.Equal(c.keys(), all) {
		t.Errorf("got %v", c.keys())
	}
	if _, c = start(t, kv, ""); !slices.Equal(c.keys(), all[:2]) {
		t.Errorf("after a restart: %v", c.keys())
	}
}

func TestHalfWrittenSecretIsDropped(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.json.tmp"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, journal.NewMemory(), dir)
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// One damaged file among the secrets keeps no other object out: the daemon starts. The file is named and its content is
// not shown, and it is a problem until the secret is applied again or deleted.
func TestADamagedSecretKeepsNothingElseOut(t *testing.T) {
	kv, dir := journal.NewMemory(), t.TempDir()
	p, _ := start(t, kv, dir)
	apply(t, p, objects)
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v", files, err)
	}
	sound, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 8*len(sound); i += 7 {
		b := bytes.Clone(sound)
		b[i/8] ^= 1 << (i % 8)
		if err := os.WriteFile(files[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		p, c := start(t, kv, dir)
		if keys := c.keys(); len(keys) < 2 || !slices.Equal(keys[:2], all[:2]) {
			t.Fatalf("bit %d: in effect: %v", i, keys)
		}
		problems := p.Problems()
		if text := fmt.Sprint(problems); strings.Contains(text, secretValue) || strings.Contains(text, "aHVudGVyMg") {
			t.Errorf("bit %d: the problem shows the secret: %s", i, text)
		}
		if len(problems) == 0 {
			continue // the file has another value now, or another name of a field
		}
		if c.synced != 1 { // a secret hides no pod
			t.Fatalf("bit %d: the source has not spoken with problems %v", i, problems)
		}
		if i%2 == 0 {
			apply(t, p, objects)
		} else if err := p.Delete(t.Context(), all[2]); err != nil {
			t.Fatalf("bit %d: the damaged secret cannot be deleted: %v", i, err)
		}
		if left := p.Problems(); len(left) != 0 || c.synced != 1 {
			t.Fatalf("bit %d: after the cure: %v, synced %d", i, left, c.synced)
		}
	}
}

func TestForeignFileAmongSecretsIsNamedAndNotShown(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte(secretValue), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "y.json"), 0o700); err != nil { // reading it fails, as on a bad sector
		t.Fatal(err)
	}
	p, c := start(t, journal.NewMemory(), dir)
	got := p.Problems()
	if len(got) != 2 || c.synced != 1 || !strings.Contains(got[0].Text, "x.json: damaged, or not a secret stored by csi-volmgr") ||
		!strings.Contains(got[1].Text, "y.json: is a directory); apply the secret again") || strings.Contains(fmt.Sprint(got), secretValue) {
		t.Errorf("got %v, synced %d", got, c.synced)
	}
}

// failing is a KV whose commits fail.
type failing struct{ api.KV }

var errFull = errors.New("disk full")

func (failing) CommitBucket(context.Context, string, map[string][]byte) error { return errFull }

func TestNothingTakesEffectBeforeItIsDurable(t *testing.T) {
	kv := journal.NewMemory()
	p, c := start(t, kv, "")
	c.durable = func(u source.Update) {
		kept, err := kv.LoadBucket(t.Context(), "objects")
		if err != nil || len(kept.Sound) != 2 && len(u.Put) > 0 || len(kept.Sound) != 1 && len(u.Delete) > 0 {
			t.Errorf("update %v, but kept are %d, %v", u, len(kept.Sound), err)
		}
	}
	apply(t, p, objects)
	if err := p.Delete(t.Context(), all[1]); err != nil {
		t.Fatal(err)
	}

	p, c = start(t, failing{journal.NewMemory()}, t.TempDir())
	_, err := p.Apply(t.Context(), decode(t, objects))
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "pod default/web: not in effect") {
		t.Errorf("got %v", err)
	}
	// The secret was written before, so it is in effect.
	if !slices.Equal(c.keys(), all[2:]) {
		t.Errorf("in effect: %v", c.keys())
	}
}

func TestSecretThatCannotBeWrittenKeepsTheRestOut(t *testing.T) {
	kv, dir := journal.NewMemory(), filepath.Join(t.TempDir(), "secrets")
	p, c := start(t, kv, dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := p.Apply(t.Context(), decode(t, objects))
	if err == nil || !strings.Contains(err.Error(), "secret default/token: ") || !strings.Contains(err.Error(), "pod default/web: not in effect") {
		t.Errorf("got %v", err)
	}
	if kept, err := kv.LoadBucket(t.Context(), "objects"); len(kept.Sound) != 0 || len(c.keys()) != 0 || err != nil {
		t.Errorf("kept %v, in effect %v, %v", kept, c.keys(), err)
	}
}

func TestBadObjectsAreRefusedTogether(t *testing.T) {
	p, c := start(t, journal.NewMemory(), "")
	good := decode(t, objects)
	bad := good[0].DeepCopyObject().(*corev1.Pod)
	bad.UID = ".."
	_, err := p.Apply(t.Context(), append(slices.Clone(good), bad, &corev1.Node{}))
	if err == nil || !strings.Contains(err.Error(), `pod default/web: metadata.uid: found "..", want`) ||
		!strings.Contains(err.Error(), "pod default/web: found twice") || !strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("got %v", err)
	}
	if len(c.keys()) != 0 {
		t.Errorf("in effect: %v", c.keys())
	}
}

func TestDeleteOfWhatWasNotApplied(t *testing.T) {
	p, _ := start(t, journal.NewMemory(), "")
	if err := p.Delete(t.Context(), all[1]); !errors.Is(err, source.ErrNotFound) || err.Error() != "pod default/web: not found among what was applied" {
		t.Errorf("got %v", err)
	}
}

// TestUnreadableObjectKeepsTheSourceSilent: rule 5. An unreadable object may be a pod. Until the source knows what it
// is, the manager must not take any volume for unwanted.
func TestUnreadableObjectKeepsTheSourceSilent(t *testing.T) {
	for name, mend := range map[string]func(p *api.Provider) error{
		"deleted":       func(p *api.Provider) error { return p.Delete(t.Context(), all[1]) },
		"applied again": func(p *api.Provider) error { _, err := p.Apply(t.Context(), decode(t, objects)); return err },
	} {
		kv := journal.NewMemory()
		if err := kv.CommitBucket(t.Context(), "objects", map[string][]byte{
			"Pod/default/web":                    []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"fromTheFuture":1}}`),
			"PersistentVolumeClaim/default/data": []byte(`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data"}}`),
		}); err != nil {
			t.Fatal(err)
		}
		p, c := start(t, kv, "")
		if c.synced != 0 || !slices.Equal(c.keys(), all[:1]) {
			t.Errorf("synced %d, in effect %v", c.synced, c.keys())
		}
		if l := p.Problems(); len(l) != 1 || l[0].Where != "pod default/web" || !strings.Contains(l[0].Text, "fromTheFuture: unknown field") {
			t.Errorf("got %+v", l)
		}
		if err := mend(p); err != nil {
			t.Fatal(err)
		}
		if c.synced == 0 || len(p.Problems()) != 0 {
			t.Errorf("%s: synced %d, problems %v", name, c.synced, p.Problems())
		}
	}
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

// An unreadable value in the journal counts as an unreadable object, and the source starts all the same.
//
// Faults: A184.
func TestAValueThatTheJournalCannotReadKeepsTheSourceSilent(t *testing.T) {
	kv := torn{journal.NewMemory(), map[string]string{"Pod/default/web": "checksum mismatch"}}
	p, c := start(t, kv, "")
	if l := p.Problems(); c.synced != 0 || len(l) != 1 || l[0].Where != "pod default/web" || !strings.Contains(l[0].Text, "(checksum mismatch); apply it again: csi-volmgr apply -f FILE") {
		t.Errorf("synced %d, %+v", c.synced, l)
	}
	if err := p.Delete(t.Context(), all[1]); err != nil || c.synced == 0 || len(p.Problems()) != 0 {
		t.Errorf("deleted: %v, synced %d, problems %v", err, c.synced, p.Problems())
	}
}

// What is not a pod hides no pod: the source speaks. The catalog hears of it by its key until it is applied again or
// deleted, so that it does not count as absent. A kind that only a newer version knows may want volumes as a pod does.
//
// Faults: A184.
func TestOnlyAnUnreadablePodKeepsTheSourceSilent(t *testing.T) {
	for _, kind := range append(manifest.KindNames(), "PodGroup", "") {
		kv := torn{journal.NewMemory(), map[string]string{kind + "/default/web": "checksum mismatch"}}
		p, c := start(t, kv, "")
		silent := kind == resolve.KindPod || kind == "PodGroup" || kind == ""
		of := source.Key{Kind: kind, Namespace: "default", Name: "web"}
		if l := p.Problems(); silent != (c.synced == 0) || len(l) != 1 || !strings.Contains(l[0].Text, "apply it again: csi-volmgr apply -f FILE") {
			t.Errorf("%q: synced %d, %+v", kind, c.synced, l)
		}
		if why := c.unreadable[of]; !strings.Contains(why, "checksum mismatch") {
			t.Errorf("%q: the catalog heard %q", kind, c.unreadable)
		}
		if err := p.Delete(t.Context(), of); err != nil || c.synced != 1 || len(p.Problems()) != 0 {
			t.Errorf("%q deleted: %v, synced %d, problems %v", kind, err, c.synced, p.Problems())
		}
	}
}

func TestObjectUnderAnothersKeyIsNotTaken(t *testing.T) {
	kv := journal.NewMemory()
	if err := kv.CommitBucket(t.Context(), "objects", map[string][]byte{
		"Pod/default/web": []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"other"}}`),
	}); err != nil {
		t.Fatal(err)
	}
	p, c := start(t, kv, "")
	if len(c.keys()) != 0 || len(p.Problems()) != 1 {
		t.Errorf("in effect %v, problems %v", c.keys(), p.Problems())
	}
}

func TestWaitingForATurnHonoursTheContext(t *testing.T) {
	p, c := start(t, journal.NewMemory(), "")
	ctx, cancel := context.WithCancel(t.Context())
	c.durable = func(source.Update) {
		// This very change is under way, so Delete has to wait.
		cancel()
		if err := p.Delete(ctx, all[0]); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	apply(t, p, objects)
}

// slowKV starts a write only when the test says so, and counts writes.
type slowKV struct {
	*journal.Memory
	begin  chan struct{}
	writes int
}

func (k *slowKV) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	<-k.begin
	k.writes++
	return k.Memory.CommitBucket(ctx, bucket, changes)
}

func TestRequestsThatWaitShareOneDurableWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &slowKV{Memory: journal.NewMemory(), begin: make(chan struct{})}
		p, c := start(t, kv, "")
		pods := func(names ...string) (all []runtime.Object) {
			for _, n := range names {
				all = append(all, decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: "+n+"}}")...)
			}
			return all
		}
		results := make([]error, 4)
		var wg sync.WaitGroup
		for i, name := range []string{"a", "b", "c"} {
			wg.Go(func() { _, results[i] = p.Apply(t.Context(), pods(name)) })
			synctest.Wait()
		}
		// This deletes an object that another request creates, so it comes after that one.
		wg.Go(func() { results[3] = p.Delete(t.Context(), key("Pod", "b")) })
		synctest.Wait()
		close(kv.begin)
		wg.Wait()
		if err := errors.Join(results...); err != nil {
			t.Fatal(err)
		}
		if kv.writes != 3 { // a; b and c together; the deletion of b
			t.Errorf("%d writes, want 3", kv.writes)
		}
		if want := []source.Key{key("Pod", "a"), key("Pod", "c")}; !slices.Equal(c.keys(), want) {
			t.Errorf("in effect: %v", c.keys())
		}
	})
}

// TestOneRequestsFailureIsNotAnothers: two requests share a write, and one of them is refused.
func TestOneRequestsFailureIsNotAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &pickyKV{slowKV: slowKV{Memory: journal.NewMemory(), begin: make(chan struct{})}, refuse: "Pod/default/b"}
		p, c := start(t, kv, "")
		results := make([]error, 3)
		var wg sync.WaitGroup
		for i, name := range []string{"a", "b", "c"} {
			pod := decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: "+name+"}}")
			wg.Go(func() { _, results[i] = p.Apply(t.Context(), pod) })
			synctest.Wait()
		}
		close(kv.begin)
		wg.Wait()
		if results[0] != nil || !errors.Is(results[1], errFull) || results[2] != nil {
			t.Errorf("got %v", results)
		}
		if want := []source.Key{key("Pod", "a"), key("Pod", "c")}; !slices.Equal(c.keys(), want) {
			t.Errorf("in effect: %v", c.keys())
		}
	})
}

// pickyKV refuses every write that contains one key.
type pickyKV struct {
	slowKV
	refuse string
}

func (k *pickyKV) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	if _, ok := changes[k.refuse]; ok {
		return errFull
	}
	return k.slowKV.CommitBucket(ctx, bucket, changes)
}

func TestRequestThatGivesUpWhileItWaitsHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &slowKV{Memory: journal.NewMemory(), begin: make(chan struct{})}
		p, c := start(t, kv, "")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.Apply(t.Context(), decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}}")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := p.Apply(ctx, decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: b}}")); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(kv.begin)
		wg.Wait()
		if want := []source.Key{key("Pod", "a")}; !slices.Equal(c.keys(), want) {
			t.Errorf("in effect: %v", c.keys())
		}
	})
}

// L14: the change is refused before anything is stored, and the error does not show the value.
func TestImmutableObjectIsNotReplaced(t *testing.T) {
	kv := journal.NewMemory()
	dir := t.TempDir()
	p, c := start(t, kv, dir)
	const secret = "{apiVersion: v1, kind: Secret, metadata: {name: token}, immutable: true, stringData: {password: " + secretValue + "}}"
	apply(t, p, secret)
	other := "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: web}}"
	r, err := p.Apply(t.Context(), decode(t, strings.Replace(secret, secretValue, "other", 1)+other))
	if err == nil || len(r) != 0 || !strings.Contains(err.Error(), "secret default/token: data: ") || strings.Contains(err.Error(), secretValue) {
		t.Errorf("got %v, %v", r, err)
	}
	if !slices.Equal(c.keys(), []source.Key{key("Secret", "token")}) {
		t.Errorf("in effect: %v", c.keys())
	}
	_, c = start(t, kv, dir)
	if s := c.objects[key("Secret", "token")].(*corev1.Secret); string(s.Data["password"]) != secretValue {
		t.Error("the change was kept")
	}
	if got := apply(t, p, secret); len(got) != 1 || got[0].Change != api.Unchanged {
		t.Errorf("the same again: got %v", got)
	}
}

// The journal stores objects in the encoding that loads fastest, and still loads objects stored as JSON.
func TestObjectsAreKeptShort(t *testing.T) {
	kv, pod := journal.NewMemory(), decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: web}}")[0]
	text, err := manifest.Encode(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.CommitBucket(t.Context(), "objects", map[string][]byte{"Pod/default/web": text}); err != nil {
		t.Fatal(err)
	}
	c := &catalog{objects: map[source.Key]runtime.Object{}}
	p := api.New(api.Config{KV: kv, Catalog: c})
	if err := p.Load(t.Context()); err != nil || !slices.Equal(c.keys(), []source.Key{key("Pod", "web")}) {
		t.Fatalf("of JSON: %v, %v", c.keys(), err)
	}
	if _, err := p.Apply(t.Context(), decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: again}}")); err != nil {
		t.Fatal(err)
	}
	values, err := kv.LoadBucket(t.Context(), "objects")
	if got := values.Sound["Pod/default/again"]; err != nil || len(got) == 0 || len(got) >= len(text) {
		t.Errorf("%q, %v", got, err)
	}
}
