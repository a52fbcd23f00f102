package watch

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) {
	drivertest.Enter()
	goleak.VerifyTestMain(m)
}

// watcher returns a Mounts for a root of its own.
func watcher(t *testing.T) *Mounts {
	t.Helper()
	root := t.TempDir()
	return NewMounts(MountsConfig{Root: root, Kernel: mount.New(root), Logger: slog.New(slog.DiscardHandler)})
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
