package named

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// claimOfCatalog returns the claim in the catalog.
func claimOfCatalog(t *testing.T, c *source.Catalog, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, ok := c.Get(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: name}).(*corev1.PersistentVolumeClaim)
	if !ok {
		t.Fatalf("the catalog has no claim %s", name)
	}
	return claim
}

// What a driver refuses is the answer of the create; a claim that never got its storage takes another size.
func TestAClaimThatWasNeverBoundTakesAnotherSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		h.is(ClaimState{Why: "CreateVolume is in flight"})
		ctx, cancel := withDeadline(t)
		defer cancel()
		if err := p.Create(ctx, Request{Name: "db", FrontEnd: Docker, Options: map[string]string{"size": "9Ei"}}); err == nil {
			t.Fatal("a volume without storage is done")
		}
		created := make(chan error, 1)
		go func() {
			created <- p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker, Options: map[string]string{"size": "64Mi"}})
		}()
		synctest.Wait()
		if got := claimOfCatalog(t, c, "db").Spec.Resources.Requests.Storage().String(); got != "64Mi" {
			t.Errorf("the claim asks for %s", got)
		}
		h.is(ClaimState{Bound: true})
		if err := <-created; err != nil {
			t.Error(err)
		}
		if err := p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker, Options: map[string]string{"size": "32Mi"}}); !errors.Is(err, ErrConflict) {
			t.Errorf("a volume shrinks: %v", err)
		}
	})
}

// A line of fstab that gets an owner, a mode or a reclaim policy later is followed, and one whose size volume set has
// overtaken goes on. What cannot be changed is named, with what the volume has.
func TestALineThatChangesIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		ask := func(options map[string]string) error {
			return p.Create(t.Context(), Request{Name: "default/data", FrontEnd: Mount, Options: options})
		}
		if err := ask(map[string]string{"size": "64Mi"}); err != nil {
			t.Fatal(err)
		}
		if err := ask(map[string]string{"size": "32Mi", "uid": "5", "gid": "6", "mode": "750", "reclaim": "Delete"}); err != nil {
			t.Fatal(err)
		}
		v, _ := p.Get(t.Context(), "default/data")
		if o := v.Options; o.SizeBytes != 64<<20 || *o.Owner.UID != 5 || *o.Owner.GID != 6 || *o.Owner.Mode != 0o750 || !o.Delete {
			t.Errorf("the volume has %+v", o)
		}
		if !slices.Equal(h.reclaimed, []string{"data true"}) {
			t.Errorf("reclaim policies: %q", h.reclaimed)
		}
		err := ask(map[string]string{"fsType": "xfs", "uid": "5"})
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), `fsType (found "xfs", the volume has "")`) || strings.Contains(err.Error(), "uid") {
			t.Errorf("a file system: %v", err)
		}
		if err := p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}); err != nil {
			t.Fatal(err)
		}
		err = p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker, Options: map[string]string{"uid": "5"}})
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "csi-volmgr volume set db uid=5") {
			t.Errorf("Docker: %v", err)
		}
	})
}

func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		grows(t, c)
		create(t, p, "db", nil)
		if _, err := p.Mount(t.Context(), "db", "c1"); err != nil {
			t.Fatal(err)
		}
		if err := p.Change(t.Context(), "db", map[string]string{"size": "2Gi", "uid": "7", "reclaim": "Delete"}); err != nil {
			t.Fatal(err)
		}
		claim := claimOfCatalog(t, c, "db")
		if got := claim.Spec.Resources.Requests.Storage().String(); got != "2Gi" || claim.Annotations[ReclaimAnnotation] != "Delete" {
			t.Errorf("the claim: %s, %v", got, claim.Annotations)
		}
		if last := h.gives[len(h.gives)-1]; last.UID == nil || *last.UID != 7 || !slices.Equal(h.reclaimed, []string{"db true"}) {
			t.Errorf("given to %+v; reclaim policies %q", last, h.reclaimed)
		}
		for words, given := range map[string]map[string]string{
			"cannot shrink": {"size": "1Gi"}, "class cannot be changed": {"class": "x"}, "found no option": {},
			"at least 1Mi": {"size": "10"}, "Retain or Delete": {"reclaim": "x"},
		} {
			if err := p.Change(t.Context(), "db", given); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v: %v, want %q", given, err, words)
			}
		}
		h.reclaimIs = errors.New("the disk is full")
		if err := p.Change(t.Context(), "db", map[string]string{"reclaim": "Retain"}); !errors.Is(err, h.reclaimIs) {
			t.Errorf("the policy cannot be stored: %v", err)
		}
		if v, _ := p.Get(t.Context(), "db"); !v.Options.Delete || v.Options.SizeBytes != 2<<30 {
			t.Errorf("after refusals: %+v", v.Options)
		}
		create(t, p, "shared", map[string]string{"claim": "theirs"})
		if err := p.Change(t.Context(), "shared", map[string]string{"size": "9Gi"}); !errors.Is(err, ErrConflict) {
			t.Errorf("another source's claim: %v", err)
		}
		if err := p.Change(t.Context(), "nope", map[string]string{"size": "9Gi"}); !errors.Is(err, ErrNotFound) {
			t.Errorf("no volume: %v", err)
		}
	})
}

// A class that lets no volume grow is named, and nothing is stored.
func TestChangeOfASizeThatNoClassAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		err := p.Change(t.Context(), "db", map[string]string{"size": "2Gi"})
		if v, _ := p.Get(t.Context(), "db"); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "allowVolumeExpansion") || v.Options.SizeBytes != defaultSize {
			t.Errorf("%v; %+v", err, v.Options)
		}
	})
}

// Each field of Options is compared when a volume is asked for again.
func TestEachOptionIsCompared(t *testing.T) {
	base := Options{}
	fields := reflect.TypeFor[Options]()
	for i := range fields.NumField() {
		other := base
		f := reflect.ValueOf(&other).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int64:
			f.SetInt(7)
		case reflect.Slice:
			f.Set(reflect.ValueOf([]string{"x"}))
		case reflect.Map:
			f.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		case reflect.Struct:
			other.Owner.UID = new(int)
		default:
			t.Fatalf("field %s: kind %s", fields.Field(i).Name, f.Kind())
		}
		if maps.Equal(base.words(), other.words()) {
			t.Errorf("field %s is not compared", fields.Field(i).Name)
		}
	}
}

// withDeadline returns a context that ends before a driver answers.
func withDeadline(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), Patience/2)
}

// grows lets the volumes of the default class grow.
func grows(t *testing.T, c *source.Catalog) {
	t.Helper()
	class, ok := c.Get(source.Key{Kind: resolve.KindClass, Name: "local"}).(*storagev1.StorageClass)
	if !ok {
		t.Fatal("no class local")
	}
	class = class.DeepCopy()
	class.TypeMeta, class.AllowVolumeExpansion = metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: resolve.KindClass}, new(true)
	if err := c.Apply("api", source.Update{Put: []runtime.Object{class}}); err != nil {
		t.Fatal(err)
	}
}
