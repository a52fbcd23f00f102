package named

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// anonymousName is a name that Docker makes up.
const anonymousName = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// The data of a volume whose name Docker made up goes with it: --rm and docker rm -v remove it, and there is no other name
// to find it by. A volume that exists keeps its policy, and so does each name that a person chose.
func TestAnAnonymousVolumeIsDeletedWithItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		for name, tc := range map[string]struct {
			req  Request
			want bool
		}{
			"anonymous":      {Request{Name: anonymousName, FrontEnd: Docker}, true},
			"with options":   {Request{Name: strings.Replace(anonymousName, "0", "1", 1), FrontEnd: Docker, Options: map[string]string{"size": "1Gi"}}, false},
			"a digit fewer":  {Request{Name: anonymousName[1:], FrontEnd: Docker}, false},
			"no hexadecimal": {Request{Name: "g" + anonymousName[1:], FrontEnd: Docker}, false},
		} {
			if err := p.Create(t.Context(), tc.req); err != nil {
				t.Fatal(err)
			}
			if v, _ := p.Get(t.Context(), tc.req.Name); v.Options.Delete != tc.want {
				t.Errorf("%s: Delete is %v", name, v.Options.Delete)
			}
		}
		was := strings.Replace(anonymousName, "0", "2", 1)
		create(t, p, was, map[string]string{"size": "1Gi"}) // as an earlier version made it
		create(t, p, was, nil)
		if v, _ := p.Get(t.Context(), was); v.Options.Delete {
			t.Error("a volume that exists has another policy")
		}
	})
}

// Compose passes mode: 0770 as the number 504. A volume that an earlier version made with such digits goes on.
func TestAModeOfDockersHasALeadingZero(t *testing.T) {
	at := placeOf("db")
	at.frontEnd = Docker
	for given, words := range map[string]string{"504": `mode: "0770"`, "488": `mode: "0750"`, "0888": "octal", "0770": "", "02750": "", "0": ""} {
		o, err := parse(at, map[string]string{"mode": given})
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("mode %s: %v, want %q", given, err, words)
		}
		if given == "0770" && (o.Owner.Mode == nil || *o.Owner.Mode != 0o770) {
			t.Errorf("mode 0770 is %v", o.Owner.Mode)
		}
	}
	made, err := parse(placeOf("db"), map[string]string{"mode": "750"})
	if err != nil {
		t.Fatalf("a line of fstab: %v", err)
	}
	at.was = &made
	if _, err := parse(at, map[string]string{"mode": "750"}); err != nil {
		t.Errorf("a volume that has it: %v", err)
	}
	if _, err := parse(at, map[string]string{"mode": "700"}); err == nil {
		t.Error("another mode is taken since the volume exists")
	}
}

// A size without its unit makes no volume. A volume of that size goes on, and so does a capacity_min of Nomad's.
func TestASizeHasAUnit(t *testing.T) {
	at := placeOf("db")
	for _, given := range []string{"10", "1m", "1023Ki"} {
		if _, err := parse(at, map[string]string{"size": given}); err == nil || !strings.Contains(err.Error(), "at least 1Mi") {
			t.Errorf("size %s: %v", given, err)
		}
	}
	if _, err := parse(at, map[string]string{"size": "10"}); err == nil || !strings.Contains(err.Error(), "such as 10Gi") {
		t.Errorf("size 10: %v", err)
	}
	if _, err := parse(at, map[string]string{"size": "1Mi"}); err != nil {
		t.Error(err)
	}
	at.was = &Options{SizeBytes: 10}
	if _, err := parse(at, map[string]string{"size": "10"}); err != nil {
		t.Errorf("a volume of ten bytes: %v", err)
	}
	if _, err := parse(at, map[string]string{"size": "11"}); err == nil {
		t.Error("a volume of ten bytes grows to eleven")
	}
	if _, err := parse(place{frontEnd: Nomad}, map[string]string{"size": "1000"}); err != nil {
		t.Errorf("capacity_min of Nomad's: %v", err)
	}
}

// Volumes that an earlier version made with such options, or without a name, go on after an upgrade: a create with the same
// options, as Compose and podman repeat it, finds them as they are.
func TestWhatAnEarlierVersionMadeIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		for name, o := range map[string]Options{
			"ten":         {SizeBytes: 10},
			"digits":      {SizeBytes: defaultSize, Owner: state.Owner{Mode: new(fs.FileMode(0o750))}},
			anonymousName: {SizeBytes: defaultSize},
		} {
			o.Namespace, o.Claim, o.AccessMode, o.Subdir = "default", name, corev1.ReadWriteOnce, defaultSubdir
			row, err := json.Marshal(Volume{Name: name, FrontEnd: Docker, Options: o})
			if err != nil {
				t.Fatal(err)
			}
			h.kv[name] = row
		}
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "ten", map[string]string{"size": "10"})
		create(t, p, "digits", map[string]string{"mode": "750"})
		create(t, p, anonymousName, nil)
		for name, want := range map[string]int64{"ten": 10, "digits": defaultSize, anonymousName: defaultSize} {
			if v, err := p.Get(t.Context(), name); err != nil || v.Options.SizeBytes != want || v.Options.Delete {
				t.Errorf("%s: %+v, %v", name, v.Options, err)
			}
		}
	})
}
