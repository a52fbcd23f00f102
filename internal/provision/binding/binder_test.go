package binding

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// disk is a journal in memory that may be full.
type disk struct {
	*journal.Memory
	full bool
}

func (d *disk) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	if d.full {
		return errors.New("no space left on device")
	}
	return d.Memory.CommitBucket(ctx, bucket, changes)
}

type sink struct{}

func (sink) SetPod(state.PodWant)    {}
func (sink) RemovePod(state.PodUID)  {}
func (sink) SourceSynced(string)     {}
func (sink) made(source.Key) bool    { return false }
func (sink) silent() (none []string) { return nil }

func (sink) volumes() []manager.VolumeStatus { return nil }

type rig struct {
	*Binder
	t *testing.T
	c Config
}

func newRig(t *testing.T) *rig {
	c := Config{
		Catalog: source.New(source.Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: sink{}}),
		Journal: &disk{Memory: journal.NewMemory()}, Remote: "cluster", Made: sink{}.made, Silent: sink{}.silent, Volumes: sink{}.volumes,
		Logger: slog.New(slog.DiscardHandler),
	}
	return &rig{New(c), t, c}
}

// put lists objects as the source of that name does.
func (r *rig) put(source string, objects ...runtime.Object) {
	r.t.Helper()
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.PersistentVolumeClaim:
			o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim}
		case *corev1.PersistentVolume:
			o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindVolume}
		case *storagev1.StorageClass:
			o.TypeMeta = metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: resolve.KindClass}
		}
		if err := r.c.Catalog.Put(source, o); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) step() {
	r.t.Helper()
	if err := errors.Join(r.Load(r.t.Context()), r.bind(r.t.Context())); err != nil {
		r.t.Fatal(err)
	}
}

// wants checks which volume the catalog has for a claim.
func (r *rig) wants(claim, volume string) {
	r.t.Helper()
	if got := r.c.Catalog.Binding(key(claim)).Volume; got != volume {
		r.t.Errorf("claim %s has volume %q, want %q", claim, got, volume)
	}
}

// A claim has the same volume after a restart, whatever would fit better; the volume of a
// deleted claim goes to another only after its source has stopped listing it.
func TestBindingOutlivesTheDaemon(t *testing.T) {
	r := newRig(t)
	r.put("file", claim("a", "1Gi"), volume("large", "9Gi"))
	r.step()
	r.wants("a", "large")
	r.put("file", volume("small", "1Gi"))
	r.Binder = New(r.c)
	r.c.Catalog.SetBinding(key("a"), resolve.Binding{})
	r.step()
	r.wants("a", "large")
	r.put("file", claim("b", "5Gi"))
	r.step()
	r.wants("b", "")

	r.c.Catalog.Delete("file", key("a"))
	if v, err := r.Release(t.Context(), key("a")); v != "large" || err != nil {
		t.Errorf("released %q, %v", v, err)
	}
	if _, err := r.Release(t.Context(), key("a")); !errors.Is(err, ErrNone) {
		t.Errorf("released again: %v", err)
	}
	r.Binder = New(r.c)
	r.step()
	r.wants("a", "")
	r.wants("b", "")
	r.c.Catalog.Delete("file", source.Key{Kind: resolve.KindVolume, Name: "large"})
	r.step()
	r.put("file", volume("large", "9Gi"))
	r.step()
	r.wants("b", "large")
}

// An operator who deletes a claim before Run has read the journal releases its volume.
func TestAReleaseMayBeQuickerThanRun(t *testing.T) {
	r := newRig(t)
	r.put("file", claim("a", "1Gi"), volume("v", "1Gi"))
	r.step()
	r.c.Catalog.Delete("file", key("a"))
	r.Binder = New(r.c)
	if v, err := r.Release(t.Context(), key("a")); v != "v" || err != nil {
		t.Errorf("released %q, %v", v, err)
	}
	r.put("file", claim("a", "1Gi"))
	r.Binder = New(r.c)
	r.step()
	r.wants("a", "v") // the claim is listed again, and has its volume
}

// No pod gets a volume before the choice is durable.
func TestChoiceIsDurableBeforeItShows(t *testing.T) {
	r := newRig(t)
	r.put("file", claim("a", "1Gi"), volume("v", "1Gi"))
	r.c.Journal.(*disk).full = true
	if err := errors.Join(r.Load(t.Context()), r.bind(t.Context())); err == nil {
		t.Error("a full journal is no error")
	}
	r.wants("a", "")
	r.c.Journal.(*disk).full = false
	r.step()
	r.wants("a", "v")
}

// The binder leaves claims to others: a cluster binds its own, and the controller makes a
// volume if the class says so. A volume's claimRef and a claim's volumeName decide.
func TestWhichClaimsAreBound(t *testing.T) {
	manual, fast := "manual", "fast"
	class := func(name *string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = name }
	}
	of := func(name string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = name }
	}
	r := newRig(t)
	r.Binder.c.Made = func(k source.Key) bool { return k == key("made") }
	r.put("file", &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: fast}, Provisioner: "d"},
		claim("of-a-class-that-is-not-there", "1Gi", class(&manual)), volume("m", "1Gi", of(manual)),
		claim("of-one-that-makes-volumes", "1Gi", class(&fast)), volume("f", "1Gi", of(fast)),
		claim("made", "1Gi"), claim("plain", "1Gi"), volume("p", "1Gi"),
		claim("ref", "1Gi"), volume("r", "1Gi", func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "ref"}
		}),
		claim("bound", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }))
	r.put("cluster", claim("remote", "1Gi"), volume("z", "1Gi"))
	r.step()
	for claim, volume := range map[string]string{
		"of-a-class-that-is-not-there": "m", "of-one-that-makes-volumes": "", "made": "", "plain": "p", "ref": "", "bound": "",
		"remote": "",
	} {
		r.wants(claim, volume)
	}
}

// A volume that an earlier claim of the name had does not keep a new claim from another volume,
// and is not given to it.
func TestAVolumeOfAnEarlierClaimHoldsNoNewOneUp(t *testing.T) {
	r := newRig(t)
	uid := func(c *corev1.PersistentVolumeClaim) { c.UID = "new" }
	of := func(uid types.UID) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "c", UID: uid}
		}
	}
	r.put("file", claim("c", "1Gi", uid), volume("before", "1Gi", of("old")), volume("free", "1Gi"))
	r.step()
	r.wants("c", "free")

	r = newRig(t)
	r.put("file", claim("c", "1Gi", uid), volume("its-own", "1Gi", of("new")), volume("free", "1Gi"))
	r.step()
	r.wants("c", "") // its-own is its volume without a choice
}

// The binder chooses nothing until every source has listed its objects; the last one to do so wakes it.
func TestNothingIsChosenBeforeEverySourceHasSpoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		silent := []string{"file"}
		r.Binder.c.Silent = func() []string { return silent }
		r.run()
		r.put("file", claim("a", "1Gi"), volume("v", "1Gi"))
		synctest.Wait()
		r.wants("a", "")
		silent = nil
		r.Wake()
		synctest.Wait()
		r.wants("a", "v")
	})
}

// A claim, a volume and a class wake the binder; a pod does not, since pods change a
// hundred times as often.
func TestWhatAClaimDependsOnWakesTheBinder(t *testing.T) {
	manual := "manual"
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		looks := 0
		r.Binder.c.Silent = func() []string { looks++; return nil }
		r.run()
		for _, c := range []struct {
			name  string
			wakes bool
			put   runtime.Object
		}{
			{"a claim", true, claim("a", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &manual })},
			{"a pod", false, &corev1.Pod{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindPod},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n1"},
			}},
			{"a class", true, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: manual}, Provisioner: resolve.NoProvisioner}},
			{"a volume", true, volume("v", "1Gi", func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = manual })},
		} {
			synctest.Wait()
			before := looks
			r.put("file", c.put)
			synctest.Wait()
			if looked := looks > before; looked != c.wakes {
				t.Errorf("%s: the binder looks again: %t", c.name, looked)
			}
		}
		r.wants("a", "v")
	})
}

// run runs the binder until the test ends.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	for _, text := range []string{
		"", "{", `{"version":2,"claim":"default/a","volume":"v","storage":"s"}`,
		`{"version":1,"claim":"default/b","volume":"v","storage":"s"}`, `{"version":1,"claim":"default/a","storage":"s"}`,
	} {
		r := newRig(t)
		if err := r.c.Journal.CommitBucket(t.Context(), bucket, map[string][]byte{"default/a": []byte(text)}); err != nil {
			t.Fatal(err)
		}
		r.put("file", claim("a", "1Gi"), volume("v", "1Gi"))
		r.step()
		r.wants("a", "")
		if !strings.Contains(r.shown[key("a")].Note, "cannot be read") {
			t.Errorf("%s: the claim waits for %q", text, r.shown[key("a")].Note)
		}
	}
}
