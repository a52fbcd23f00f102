package away

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fc"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/iscsi"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// desk is a daemon whose helpers only note what they are asked.
type desk struct {
	volumes []state.Volume
	secrets int // how many were read
	mu      sync.Mutex
	asked   []verbRequest     // guarded by mu
	answer  func(verbRequest) // runs in the helper
	driver  *Driver
}

func newDesk(t *testing.T, of state.DriverName) *desk {
	t.Helper()
	d := &desk{answer: func(verbRequest) {}}
	helpers := isolate.New(isolate.Config{Service: isolate.Service{Handlers: map[string]isolate.Handler{
		callVerb: isolate.Handle(func(_ context.Context, r verbRequest) (any, error) {
			d.mu.Lock()
			d.asked = append(d.asked, r)
			d.mu.Unlock()
			d.answer(r)
			return verbReply{}, nil
		}),
	}}})
	t.Cleanup(func() {
		if err := helpers.Close(); err != nil {
			t.Error(err)
		}
	})
	d.driver = New(Config{
		Kind: of, Helpers: helpers, Layout: state.Layout{Root: "/root"}, Logger: slog.New(slog.DiscardHandler),
		Volumes: func() []state.Volume { return d.volumes },
		Secret: func(_ context.Context, ref state.SecretRef) (map[string]string, error) {
			d.secrets++
			if ref.Name == "none" {
				return nil, errSecret
			}
			return map[string]string{"of": ref.Name}, nil
		},
	})
	return d
}

func (d *desk) requests() []verbRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

var errSecret = errors.New("no such secret")

func diskVolume(of state.DriverName, name, source, secret string) state.Volume {
	return state.Volume{
		ID:    state.SharedID(of, name),
		Spec:  &state.Spec{Driver: of, Name: name, Builtin: true, Config: []byte(source), StageRef: state.SecretRef{Name: secret}},
		Stage: state.Fact{Phase: state.Present},
	}
}

func target(iqn, more string) string {
	return `{"targetPortal": "192.0.2.1", "iqn": "` + iqn + `", "lun": 0` + more + `}`
}

// A helper has neither the journal nor secrets: Unstage is given the volumes of its kind, and
// Stage the secret if the source logs in with one.
func TestAVerbIsGivenWhatAHelperLacks(t *testing.T) {
	const iqn = "iqn.2024-01.example:t"
	plain := diskVolume(iscsi.Kind, "plain", target(iqn, ""), "unused")
	chap := diskVolume(iscsi.Kind, "chap", target(iqn, `, "chapAuthSession": true`), "login")
	found := diskVolume(iscsi.Kind, "found", target(iqn, `, "chapAuthDiscovery": true`), "login")
	fibre := diskVolume(fc.Kind, "fibre", `{"wwids": ["3600"]}`, "")
	for _, c := range []struct {
		verb    string
		v       state.Volume
		volumes int
		secret  string
	}{
		{"Stage", plain, 0, ""},
		{"Stage", chap, 0, "login"},
		{"Stage", found, 0, "login"},
		{"Unstage", chap, 3, ""},
		{"Publish", chap, 0, ""},
		{"Unpublish", chap, 0, ""},
		{"Expand", chap, 0, ""},
		{"Stage", fibre, 0, ""},
		{"Unstage", fibre, 1, ""},
	} {
		d := newDesk(t, c.v.Spec.Driver)
		d.volumes = []state.Volume{plain, fibre, chap, found}
		if err := d.call(t.Context(), c.verb, c.v); err != nil {
			t.Fatal(err)
		}
		got := d.requests()[0].Given
		if len(got.Volumes) != c.volumes || got.Secret["of"] != c.secret || slices.ContainsFunc(got.Volumes, func(v state.Volume) bool {
			return v.Spec.Driver != c.v.Spec.Driver || v.Stage.Phase != state.Present
		}) {
			t.Errorf("%s of %s: given %+v", c.verb, c.v.Spec.Name, got)
		}
		if c.secret == "" && d.secrets > 0 {
			t.Errorf("%s of %s read a secret", c.verb, c.v.Spec.Name)
		}
	}
}

func (d *desk) call(ctx context.Context, verb string, v state.Volume) error {
	_, err := d.driver.do(ctx, verbRequest{Verb: verb, Volume: v})
	return err
}

// A secret that cannot be read is the error of Stage, with its cause; no helper is asked.
func TestStageWithoutItsSecret(t *testing.T) {
	d := newDesk(t, iscsi.Kind)
	v := diskVolume(iscsi.Kind, "data", target("iqn.2024-01.example:t", `, "chapAuthSession": true`), "none")
	if err := d.driver.Stage(t.Context(), v); !errors.Is(err, errSecret) || len(d.requests()) > 0 {
		t.Errorf("got %v, asked %v", err, d.requests())
	}
}

// Two volumes of one target log in and out one after the other, and the second is given what
// the first left in the journal. A volume of another target does not wait.
func TestVolumesOfOneTargetTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, iscsi.Kind)
		first := diskVolume(iscsi.Kind, "first", target("iqn.2024-01.example:t", ""), "")
		second := diskVolume(iscsi.Kind, "second", target("iqn.2024-01.example:t", ""), "")
		other := diskVolume(iscsi.Kind, "other", target("iqn.2024-01.example:u", ""), "")
		proceed := make(chan struct{})
		d.answer = func(r verbRequest) {
			if r.Volume.ID == first.ID {
				<-proceed
			}
		}
		done := make(chan error, 2)
		go func() { done <- d.driver.Unstage(t.Context(), first) }()
		synctest.Wait()
		go func() { done <- d.driver.Unstage(t.Context(), second) }()
		synctest.Wait()
		if asked := d.requests(); len(asked) != 1 {
			t.Errorf("the second call on the target does not wait: asked %d times", len(asked))
		}
		if err := d.driver.Stage(t.Context(), other); err != nil {
			t.Error(err)
		}
		d.volumes = []state.Volume{first}
		close(proceed)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		asked := d.requests()
		if last := asked[len(asked)-1]; last.Volume.ID != second.ID || len(last.Given.Volumes) != 1 {
			t.Errorf("the second was asked with %+v", last)
		}
	})
}

// A call that is left behind lets the other volumes of its target go on.
func TestACallLeftBehindFreesItsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, iscsi.Kind)
		dead := diskVolume(iscsi.Kind, "dead", target("iqn.2024-01.example:t", ""), "")
		alive := diskVolume(iscsi.Kind, "alive", target("iqn.2024-01.example:t", ""), "")
		back := make(chan struct{})
		d.answer = func(r verbRequest) {
			if r.Volume.ID == dead.ID {
				<-back
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var uncertain *state.CallError
		if err := d.driver.Stage(ctx, dead); !errors.As(err, &uncertain) || uncertain.Outcome != state.Uncertain {
			t.Errorf("a disk that does not answer: %v", err)
		}
		if err := d.driver.Stage(t.Context(), alive); err != nil {
			t.Error(err)
		}
		if err := d.driver.Unstage(t.Context(), dead); !errors.Is(err, isolate.ErrHangs) {
			t.Errorf("unstaged while its mount hangs: %v", err)
		}
		close(back)
		synctest.Wait()
		if err := d.driver.Unstage(t.Context(), dead); err != nil {
			t.Error(err)
		}
	})
}

// What a verb says besides its result reaches the daemon's log, also if it fails.
func TestWhatAVerbSaysIsLogged(t *testing.T) {
	var log logged
	helpers := isolate.New(isolate.Config{Service: isolate.Service{Handlers: map[string]isolate.Handler{
		callVerb: isolate.Handle(func(context.Context, verbRequest) (any, error) {
			return verbReply{Failed: true, Text: "x", Said: []warning{{"kept a session", []any{"portal", "192.0.2.1"}}}}, nil
		}),
	}}})
	d := New(Config{Kind: iscsi.Kind, Helpers: helpers, Logger: slog.New(slog.NewJSONHandler(&log, nil)), Volumes: func() []state.Volume { return nil }})
	if err := d.Unstage(t.Context(), diskVolume(iscsi.Kind, "data", target("iqn.2024-01.example:t", ""), "")); err == nil {
		t.Error("no error")
	}
	var line struct{ Msg, Portal, Level string }
	if err := json.Unmarshal(log, &line); err != nil || line.Msg != "kept a session" || line.Portal != "192.0.2.1" || line.Level != "WARN" {
		t.Errorf("logged %s", log)
	}
	if err := helpers.Close(); err != nil {
		t.Error(err)
	}
}

type logged []byte

func (l *logged) Write(p []byte) (int, error) {
	*l = append(*l, p...)
	return len(p), nil
}
