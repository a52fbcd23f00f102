package named

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// Whose a volume is, for each asker, front end, readable row, and form of the name.
func TestAFrontEndReachesItsOwnVolumes(t *testing.T) {
	for _, asker := range []string{"", Docker, Mount, Nomad, "later"} {
		for _, front := range []string{Docker, Mount, Nomad, "later"} {
			for _, name := range []string{"db", "default/db", "nomad-7f3a"} { // what the row says counts, not its name
				want := asker == "" || asker == front
				if got := (Asker{FrontEnd: asker}).reaches(Volume{Name: name, FrontEnd: front}); got != want {
					t.Errorf("%q reaches %s volume %s: %v", asker, front, name, got)
				}
			}
		}
	}
	// A row that cannot be read does not say whose it is. Its name must not have dockerd forget a volume, and must not
	// have podman fail over a name that it does not allow.
	for name, may := range map[string][]string{"db": {Docker}, "default/db": {Mount}, "nomad-7f3a": {Docker, Nomad}} {
		for _, asker := range []string{"", Docker, Mount, Nomad, "later"} {
			want := asker == "" || strings.Contains(strings.Join(may, " "), asker)
			if got := (Asker{FrontEnd: asker}).reaches(Volume{Name: name}); got != want {
				t.Errorf("%q reaches the unreadable row %s: %v", asker, name, got)
			}
		}
	}
}

// One volume of each front end, and what each front end may do with it.
func TestAnotherFrontEndsVolumeIsNeitherListedNorUsedNorRemoved(t *testing.T) {
	names := map[string]string{Docker: "db", Mount: "default/data", Nomad: "nomad-7f3a"}
	for asker := range names {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			p, _, stop := h.start(t, "1")
			defer stop()
			for front, name := range names {
				if err := p.Create(t.Context(), Request{Name: name, FrontEnd: front, Standing: front == Nomad}); err != nil {
					t.Fatal(err)
				}
			}
			mine := p.For(Asker{FrontEnd: asker})
			if list, err := mine.List(t.Context()); err != nil || len(list) != 1 || list[0].Name != names[asker] {
				t.Errorf("%s lists %+v, %v", asker, list, err)
			}
			for front, name := range names {
				if front == asker {
					continue
				}
				whose := Identity{front, name}.Whose()
				if _, err := mine.Get(t.Context(), name); !errors.Is(err, ErrNotFound) {
					t.Errorf("%s gets %s: %v", asker, name, err)
				}
				for what, err := range map[string]error{
					"creates": mine.Create(t.Context(), Request{Name: name, FrontEnd: asker}),
					"makes":   mine.Create(t.Context(), Request{Name: name, FrontEnd: asker, Options: map[string]string{"size": "1Gi"}}),
					"mounts":  second(mine.Mount(t.Context(), name, "c1", 0)),
					"removes": second(mine.Remove(t.Context(), 0, 7, name)),
				} {
					if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), whose) {
						t.Errorf("%s %s %s: %v, want a conflict with %q", asker, what, name, err, whose)
					}
				}
			}
			if all, err := p.List(t.Context()); err != nil || len(all) != 3 || h.listed() != 0 {
				t.Errorf("the operator lists %d volumes, %v; %d are mounted", len(all), err, h.listed())
			}
			if path, err := mine.Mount(t.Context(), names[asker], "", 0); err != nil || path == "" {
				t.Errorf("%s mounts its own: %q, %v", asker, path, err)
			}
			if _, err := mine.Remove(t.Context(), 0, 7, names[asker]); err != nil {
				t.Errorf("%s removes its own: %v", asker, err)
			}
			for _, name := range names { // the operator removes the others
				if _, err := p.For(Asker{}).Remove(t.Context(), 0, 7, name); err != nil && name != names[asker] {
					t.Errorf("the operator removes %s: %v", name, err)
				}
			}
		})
	}
}

// A container of Docker that an earlier version gave Nomad's volume can still end its use.
func TestAUseThatAnEarlierVersionCountedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		if err := p.Create(t.Context(), Request{Name: "nomad-7f3a", FrontEnd: Nomad}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Mount(t.Context(), "nomad-7f3a", "c1"); err != nil { // as any front end could
			t.Fatal(err)
		}
		if err := p.For(Asker{FrontEnd: Docker}).Unmount(t.Context(), "nomad-7f3a", "c1"); err != nil {
			t.Fatal(err)
		}
		if v, err := p.Get(t.Context(), "nomad-7f3a"); err != nil || len(v.Uses) != 0 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// The row of a removal that a kill interrupted says who asked for it; one of an earlier version does not.
func TestTheAuditLogNamesWhoAskedForARemoval(t *testing.T) {
	for _, tc := range []struct {
		before string
		by     Asker
		want   string
	}{
		{"", Asker{FrontEnd: Docker, PID: 7}, "docker volume db was removed: front end docker asked"},
		{"", Asker{PID: 7}, "docker volume db was removed: the operator asked"},
		{"front end docker", Asker{PID: 7}, "docker volume db was removed: the operator asked"},
		{"front end docker", Asker{}, "docker volume db was removed: front end docker asked"},
		{"", Asker{}, "docker volume db was removed"},
	} {
		v := Volume{Name: "db", FrontEnd: Docker, RemovedBy: tc.before}
		if got := v.removal(tc.by); got != tc.want {
			t.Errorf("%q, %+v: %s, want %s", tc.before, tc.by, got, tc.want)
		}
	}
}

// Rows of earlier versions have all a front end, or cannot be read: their pod had no name.
func TestARowWithoutAFrontEndIsNotReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		create(t, p, "db", nil)
		stop()
		h.kv["db"] = []byte(strings.Replace(string(h.kv["db"]), `"frontEnd":"docker"`, `"frontEnd":""`, 1))
		p, _, stop = h.start(t, "1")
		defer stop()
		v, err := p.For(Asker{FrontEnd: Docker}).Get(t.Context(), "db")
		if err != nil || !strings.Contains(v.Problem, "not readable") {
			t.Errorf("Docker would forget it: %+v, %v", v, err)
		}
		if _, err := p.For(Asker{FrontEnd: Mount}).Get(t.Context(), "db"); !errors.Is(err, ErrNotFound) {
			t.Errorf("mount -t csi gets it: %v", err)
		}
	})
}
