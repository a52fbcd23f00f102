package named

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// shelf is the data of a host's claims, by namespace/name. It outlives restarts.
type shelf struct {
	catalog *source.Catalog
	data    map[string]Kept
	// steps counts what is durable; at dieAt the host dies, after or (before) instead of the step.
	steps, dieAt int
	before       bool
}

var errDies = errors.New("the daemon dies")

// step is a durable change.
func (s *shelf) step() error {
	s.steps++
	if s.dieAt > 0 && (s.steps > s.dieAt || s.before && s.steps == s.dieAt) {
		return errDies
	}
	return nil
}

func claimNamed(name string) source.Key {
	return source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: name}
}

// holds gives a claim data with the marker as its PersistentVolume's name.
func (s *shelf) holds(claim, marker string) {
	if s.data == nil {
		s.data = map[string]Kept{}
	}
	key := claimNamed(claim)
	s.data[key.Namespace+"/"+key.Name] = Kept{Claim: key, Volume: marker, Made: MadeOptions("local", 64<<20)}
}

// has returns the markers by the claims' names.
func (s *shelf) has() string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(s.data)) {
		all = append(all, strings.TrimPrefix(k, "default/")+"="+s.data[k].Volume)
	}
	return strings.Join(all, " ")
}

func (h *host) Kept(_ context.Context, claim source.Key) (Kept, bool, error) {
	k, ok := h.shelf.data[claim.Namespace+"/"+claim.Name]
	return k, ok && h.shelf.catalog.Provider(claim) == "", nil
}

func (h *host) Parked(context.Context) (all []Kept, err error) {
	for _, key := range slices.Sorted(maps.Keys(h.shelf.data)) {
		if k := h.shelf.data[key]; k.Label != nil && h.shelf.catalog.Provider(k.Claim) == "" {
			all = append(all, k)
		}
	}
	return all, nil
}

func (h *host) Move(_ context.Context, from, to source.Key, label *Label) error {
	k, ok := h.shelf.data[from.Namespace+"/"+from.Name]
	_, taken := h.shelf.data[to.Namespace+"/"+to.Name]
	switch {
	case !ok:
		return ErrNotFound
	case taken:
		return ErrTaken
	case h.shelf.catalog.Provider(from) != "":
		return ErrConflict
	}
	if err := h.shelf.step(); err != nil {
		return err
	}
	delete(h.shelf.data, from.Namespace+"/"+from.Name)
	k.Claim, k.Label = to, label
	h.shelf.data[to.Namespace+"/"+to.Name] = k
	return nil
}

const removedAt = ".removed-20000101-000000" // synctest's clock

func remove(t *testing.T, p *Provider, name string) string {
	t.Helper()
	note, err := p.Remove(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return note
}

// A volume of Docker's or podman's that is removed parks its data, whatever its options, and the next one of the name, or
// of a name with the same claim, begins empty with its own. The data comes back by its name only, with its options.
func TestARemovedVolumeParksItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "shop_web-data", map[string]string{"size": "64Mi", "uid": "999"})
		h.shelf.holds("shop-web-data", "first")
		note := remove(t, p, "shop_web-data")
		parked := "shop-web-data" + removedAt
		for _, want := range []string{"csi-volmgr volume restore " + parked, "csi-volmgr delete pvc " + parked + " -n default --data"} {
			if !strings.Contains(note, want) {
				t.Errorf("the note %q lacks %q", note, want)
			}
		}
		create(t, p, "shop-web_data", map[string]string{"size": "1Gi"})
		if h.shelf.has() != parked+"=first" {
			t.Errorf("another volume of the claim's name has %s", h.shelf.has())
		}
		err := p.Create(t.Context(), Request{Name: "shop_web-data", FrontEnd: Docker})
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "shop_web-data") || !strings.Contains(err.Error(), "volume shop-web_data") {
			t.Errorf("a second name of one claim: %v, want a refusal with both names", err)
		}
		h.shelf.holds("shop-web-data", "second")
		remove(t, p, "shop-web_data")
		if want := parked + "=first " + parked + "-2=second"; h.shelf.has() != want {
			t.Errorf("%s, want %s", h.shelf.has(), want)
		}
		err = p.Create(t.Context(), Request{Name: parked, FrontEnd: Docker})
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "volume restore "+parked) {
			t.Errorf("a volume of the parked data's name: %v", err)
		}
		views, err := p.ListParked(t.Context())
		if err != nil || len(views) != 2 || views[0].Name != parked || views[0].Was != "shop_web-data" || views[1].Was != "shop-web_data" {
			t.Errorf("parked: %+v, %v", views, err)
		}
		v, err := p.Restore(t.Context(), parked, "")
		if err != nil || v.Name != "shop_web-data" || v.Options.SizeBytes != 64<<20 || v.Options.Owner.UID == nil || v.Options.Subdir != "_data" {
			t.Errorf("restored: %+v, %v", v, err)
		}
		if want := "shop-web-data=first " + parked + "-2=second"; h.shelf.has() != want {
			t.Errorf("%s, want %s", h.shelf.has(), want)
		}
		if _, err := p.Mount(t.Context(), "shop_web-data", "c1"); err != nil {
			t.Error(err)
		}
	})
}

// Data that is restored takes no name that is taken, and stays where it is.
func TestRestoreTakesNoNameThatIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		h.shelf.holds("db", "first")
		remove(t, p, "db")
		create(t, p, "db", nil)
		create(t, p, "a_b", nil)
		h.shelf.holds("kept", "other")
		parked := "db" + removedAt
		for as, want := range map[string]struct {
			is  error
			say string
		}{
			"":       {ErrConflict, "volume db exists"},
			"db":     {ErrConflict, "volume db exists"},
			"a-b":    {ErrConflict, "belongs to volume a_b"},
			"theirs": {ErrConflict, "claim default/theirs exists already (source api)"},
			"kept":   {ErrConflict, "the name is another claim's"},
			"Data":   {ErrInvalid, "found Data"},
			"x/db":   {ErrInvalid, "the data is in namespace default"},
		} {
			_, err := p.Restore(t.Context(), parked, as)
			if !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.say) {
				t.Errorf("as %q: %v, want %q", as, err, want.say)
			}
		}
		if _, err := p.Restore(t.Context(), "nope", ""); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), parked) {
			t.Errorf("no such data: %v", err)
		}
		if want := parked + "=first kept=other"; h.shelf.has() != want {
			t.Errorf("%s, want %s", h.shelf.has(), want)
		}
		if _, err := p.Restore(t.Context(), parked, "old"); err != nil || h.shelf.has() != "kept=other old=first" {
			t.Errorf("%v, %s", err, h.shelf.has())
		}
		if _, err := p.Get(t.Context(), "kept"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a refused restoration left a row: %v", err)
		}
	})
}

// fstab, systemd mounts and Nomad know their data by its name.
func TestOtherFrontEndsGoOnByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		for front, name := range map[string]string{Mount: "default/data", Nomad: "nomad-7"} {
			r := Request{Name: name, FrontEnd: front}
			claim := strings.TrimPrefix(name, "default/")
			if err := p.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			h.shelf.holds(claim, "of "+claim)
			remove(t, p, name)
			if err := p.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if want := "data=of data nomad-7=of nomad-7"; h.shelf.has() != want {
			t.Errorf("%s, want %s", h.shelf.has(), want)
		}
	})
}

// An earlier version left the data of a removed volume under the name of its claim. A new volume of the name begins empty,
// and the data is parked; or it is restored before. Data that no removed volume left is not parked but named.
func TestWhatAnEarlierVersionKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		h.shelf.holds("db", "of db")
		h.shelf.holds("web", "of web")
		h.shelf.holds("till", "of a claim")
		k := h.shelf.data["default/till"]
		k.Deletes = true
		h.shelf.data["default/till"] = k
		create(t, p, "db", nil)
		if v, err := p.Restore(t.Context(), "web", ""); err != nil || v.Name != "web" || v.Options.Class != "local" {
			t.Errorf("%+v, %v", v, err)
		}
		err := p.Create(t.Context(), Request{Name: "till", FrontEnd: Docker})
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "volume restore till") {
			t.Errorf("over the data of a claim: %v", err)
		}
		if want := "db" + removedAt + "=of db till=of a claim web=of web"; h.shelf.has() != want {
			t.Errorf("%s, want %s", h.shelf.has(), want)
		}
		if c.Provider(claimNamed("till")) != "" {
			t.Error("the refused volume's claim is listed")
		}
		if v, err := p.Restore(t.Context(), "db"+removedAt, "old"); err != nil || v.Name != "old" {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// Whether a volume parks, for every front end and kind of volume.
func TestWhichVolumesPark(t *testing.T) {
	for _, front := range []string{Docker, Mount, Nomad} {
		for _, existing := range []bool{false, true} {
			v := Volume{FrontEnd: front, Options: Options{Existing: existing}}
			if got, want := v.parks(), front == Docker && !existing; got != want {
				t.Errorf("%s, existing claim %v: %v, want %v", front, existing, got, want)
			}
		}
	}
}

// The name of parked data is that of a claim, and of a podman volume, however long and of whatever form the claim's is.
func TestTheNameOfParkedData(t *testing.T) {
	at := time.Date(2026, 11, 28, 14, 55, 26, 0, time.FixedZone("", 3600))
	long := strings.Repeat("a", 251)
	for claim, want := range map[string]string{
		"db":                 "db.removed-20261128-135526",
		"a.b":                "a.b.removed-20261128-135526",
		long:                 long[:229] + ".removed-20261128-135526",
		long[:228] + "-bbbb": long[:228] + ".removed-20261128-135526",
	} {
		for n, suffix := range map[int]string{1: "", 2: "-2", 12: "-12"} {
			key := parkedKey(claimNamed(claim), at, n)
			if len(claim) < 200 && key.Name != want+suffix {
				t.Errorf("%s, the %d.: %s, want %s", claim, n, key.Name, want+suffix)
			}
			if n == 1 && key.Name != want {
				t.Errorf("%s: %s, want %s", claim, key.Name, want)
			}
			obj := &corev1.PersistentVolumeClaim{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: key.Name},
				Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
			}
			for _, f := range resolve.Check(obj) {
				if strings.Contains(f.String(), "metadata.name") {
					t.Errorf("%s: %s", key.Name, f)
				}
			}
		}
	}
}

// A daemon that dies before or after any durable step of removals, new creations and restorations leaves all data with one
// owner each, and the next life finishes what was begun.
func TestDeathAtEveryStepOfParkingAndRestoring(t *testing.T) {
	for _, before := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			t.Run(fmt.Sprintf("before=%v/step=%d", before, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { died = parkingLife(t, n, before) })
			})
			if !died {
				if n < 8 {
					t.Errorf("the life has only %d steps", n)
				}
				break
			}
		}
	}
}

// parkingLife is a life in which a volume is removed, another of its name is made and the first is restored, with a death
// at one step and another life to the same end.
func parkingLife(t *testing.T, dieAt int, before bool) (died bool) {
	h := newHost()
	h.shelf.holds("early", "of an earlier version")
	h.shelf.dieAt, h.shelf.before = dieAt, before
	all := func() (markers []string) {
		for _, k := range h.shelf.data {
			markers = append(markers, k.Volume)
		}
		slices.Sort(markers)
		return markers
	}
	wish := func(p *Provider) {
		ctx := t.Context()
		if !slices.Contains(all(), "first") {
			if p.Create(ctx, Request{Name: "db", FrontEnd: Docker}) == nil {
				h.shelf.holds("db", "first")
			}
		}
		if h.shelf.data["default/db"].Volume == "first" {
			_, _ = p.Remove(ctx, "db")
		}
		if h.shelf.data["default/old"].Volume != "first" {
			_, _ = p.Restore(ctx, "db"+removedAt, "old")
		}
		_ = p.Create(ctx, Request{Name: "db", FrontEnd: Docker})
		_ = p.Create(ctx, Request{Name: "early", FrontEnd: Docker})
	}
	p, _, stop := h.start(t, "1")
	wish(p)
	died = h.shelf.steps >= dieAt
	stop()
	h.shelf.dieAt = 0
	p, _, stop = h.start(t, "1")
	defer stop()
	wish(p)
	if got := all(); !slices.Equal(got, []string{"first", "of an earlier version"}) {
		t.Errorf("the data is %q", got)
	}
	want := map[string]string{"default/old": "first", "default/early" + removedAt: "of an earlier version"}
	for claim, marker := range want {
		if h.shelf.data[claim].Volume != marker {
			t.Errorf("%s, want %v", h.shelf.has(), want)
		}
	}
	for _, name := range []string{"db", "old", "early"} {
		v, err := p.Get(t.Context(), name)
		if err != nil || v.Removing || len(v.Waits) > 0 {
			t.Errorf("volume %s: %+v, %v", name, v, err)
		}
		if _, err := p.Mount(t.Context(), name, "c"); err != nil {
			t.Error(err)
		}
	}
	return died
}

// A removal that a death interrupted after the data was parked does not touch what another claim of the name has since.
func TestAnInterruptedRemovalTouchesNoOtherData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		h.shelf.holds("db", "first")
		v := p.volume(p.rows["db"])
		remove(t, p, "db")
		h.shelf.holds("db", "of another claim")
		before, deleted := h.shelf.has(), len(h.deleted)
		note, err := p.deleteClaim(t.Context(), Asker{}, v)
		if err != nil || !strings.Contains(note, "restore db"+removedAt) || h.shelf.has() != before || len(h.deleted) != deleted {
			t.Errorf("%q, %v: %s, want %s; deleted %q", note, err, h.shelf.has(), before, h.deleted[deleted:])
		}
	})
}
