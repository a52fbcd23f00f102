package files_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// issuer issues numbered tokens.
type issuer struct {
	value string
	renew map[string]time.Time // by audience
	err   error
}

func (i *issuer) token(_ context.Context, of state.Pod, audience string, lifetime time.Duration) (string, time.Time, error) {
	if of.Name != "pod" || lifetime != time.Hour {
		return "", time.Time{}, errors.New("asked for something else")
	}
	return i.value + audience, i.renew[audience], i.err
}

// Items: L09, L10.
func TestTokensAreWrittenAndRenewedInTime(t *testing.T) {
	n := newNode(t, files.Projected, `{"sources": [{"serviceAccountToken": {"path": "a", "audience": "x"}}, {"serviceAccountToken": {"path": "b", "audience": "y"}}]}`)
	soon, late := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
	i := &issuer{value: "1", renew: map[string]time.Time{"x": late, "y": soon}}
	root := n.target()
	for range 5 { // pods/UID/volumes/KIND/NAME
		root = filepath.Dir(root)
	}
	l := state.Layout{Root: root}
	d := files.New(files.Projected, files.Config{Layout: l, Kernel: mount.New(l.Root), Source: n.source, Token: i.token})
	wantFiles := func(a, b string) {
		t.Helper()
		for name, want := range map[string]string{"a": a, "b": b} {
			if data, err := os.ReadFile(filepath.Join(n.target(), name)); err != nil || string(data) != want {
				t.Errorf("%s: got %q, %v, want %q", name, data, err, want)
			}
		}
	}
	at, err := d.Publish(t.Context(), n.volume, pod)
	if err != nil || !at.Equal(soon) {
		t.Errorf("to be renewed at %v, %v, want the earlier %v", at, err, soon)
	}
	wantFiles("1x", "1y")
	i.value = "2"
	if _, err := d.Publish(t.Context(), n.volume, pod); err != nil {
		t.Error(err)
	}
	wantFiles("2x", "2y")
	i.err = errors.New("no answer")
	if _, err := d.Publish(t.Context(), n.volume, pod); !errors.Is(err, i.err) {
		t.Errorf("got %v", err)
	}
	wantFiles("2x", "2y") // good tokens stay
}
