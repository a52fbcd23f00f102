package wire

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Until every source has delivered its objects, a secret that is not there may still come.
func TestASecretIsGoneOnlyOnceAllSourcesSpoke(t *testing.T) {
	n := &Node{sync: source.NewSyncTracker([]string{"files"})}
	n.catalog = source.New(source.Config{Logger: slog.New(slog.DiscardHandler)})
	read := func() error {
		_, err := secrets{n}.Secret(context.Background(), state.SecretRef{Namespace: "default", Name: "creds"})
		return err
	}
	if err := read(); err == nil || errors.Is(err, controller.ErrNoSecret) {
		t.Errorf("before the source spoke: %v", err)
	}
	n.sync.Spoke("files")
	if err := read(); !errors.Is(err, controller.ErrNoSecret) {
		t.Errorf("after it: %v, want %v", err, controller.ErrNoSecret)
	}
}
