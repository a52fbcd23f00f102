package builtins

import (
	"context"
	"log/slog"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// registered is the manager, as Register sees it.
type registered map[state.DriverName]manager.Driver

func (r registered) DriverUp(info manager.DriverInfo, d manager.Driver) { r[info.Name] = d }

// A verb of these kinds opens, reads or walks over storage that may hang: the daemon must not do so itself.
func TestVerbsThatAccessStorageRunInHelpers(t *testing.T) {
	asked := 0
	helpers := isolate.New(isolate.Config{Service: isolate.Service{Handlers: map[string]isolate.Handler{
		"verb": func(context.Context, []byte) ([]byte, error) { asked++; return []byte("{}"), nil },
	}}})
	layout := state.Layout{Root: t.TempDir()}
	all := registered{}
	New(Config{
		Layout: layout, Kernel: mount.New(layout.Root), Helpers: helpers, Logger: slog.New(slog.DiscardHandler),
		Volumes: func() []state.Volume { return nil },
	}).Register(all)
	for i, of := range []state.DriverName{kind.HostPath, kind.Local, kind.ISCSI, kind.FC} {
		v := state.Volume{ID: state.SharedID(of, "data"), Spec: &state.Spec{Driver: of, Name: "data", Builtin: true, Config: []byte("{}")}}
		if _, err := all[of].Publish(t.Context(), v, "pod"); err != nil || asked != i+1 {
			t.Errorf("%s: asked %d times, want %d; %v", of, asked, i+1, err)
		}
	}
	if err := helpers.Close(); err != nil {
		t.Error(err)
	}
}
