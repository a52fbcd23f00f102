package named

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// A volume whose storage the driver refuses leaves nothing behind, also if a mount of it was requested meanwhile:
// neither a pod, which would wait forever, nor a row, which would come back with the next start.
func TestARefusedVolumeLeavesNothingForAMountInProgress(t *testing.T) {
	for _, name := range []string{"the mount is given up", "the mount succeeds"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost()
				p, _, stop := h.start(t, "1")
				defer stop()
				mounted := make(chan struct{})
				h.is(ClaimState{Why: "CreateVolume is in flight"})
				h.mounted = func(ctx context.Context) error {
					select {
					case <-mounted:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				created, used := make(chan error, 1), make(chan error, 1)
				go func() { created <- p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}) }()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { used <- second(p.Mount(ctx, "db", "c1")) }()
				synctest.Wait()
				if h.listed() != 1 {
					t.Fatalf("%d pods are listed during the mount", h.listed())
				}
				h.is(ClaimState{Refused: true, Why: "no such pool"})
				if err := <-created; err == nil || !strings.Contains(err.Error(), "no such pool") {
					t.Errorf("create: %v", err)
				}
				if h.listed() != 0 {
					t.Errorf("%d pods stay", h.listed())
				}
				if name == "the mount succeeds" {
					close(mounted)
				} else {
					cancel()
				}
				if err := <-used; err == nil {
					t.Error("the refused volume is mounted")
				}
				if len(h.kv) != 0 {
					t.Errorf("the journal has %s", h.kv["db"])
				}
			})
		})
	}
}

// A volume whose claim gets its storage after the driver refused it stays, with its storage.
func TestAVolumeThatGetsItsStorageAfterAllStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		asked := 0
		h.claim = func() ClaimState {
			if asked++; asked == 1 {
				close(h.changed)
				h.changed = make(chan struct{})
				return ClaimState{Refused: true, Why: "no space"}
			}
			return ClaimState{Bound: true}
		}
		create(t, p, "db", nil)
		if c.Get(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "db"}) == nil || len(h.kv) != 1 {
			t.Errorf("the claim or the row is gone: %v", h.kv)
		}
	})
}

// A row whose objects this version does not accept keeps no other volume, and not the daemon, from starting.
func TestARowThatIsNotAcceptedIsSetApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		create(t, p, "db", nil)
		create(t, p, "log", nil)
		stop()
		h.kv["db"] = []byte(strings.Replace(string(h.kv["db"]), "ReadWriteOnce", "ReadWriteOften", 1))
		p = New(Config{
			KV: h, BootID: "1", Logger: slog.New(slog.DiscardHandler), Mounts: h, Claims: h,
			Catalog: source.New(source.Config{Resolve: resolve.Config{NodeName: "n"}, Sink: h}),
		})
		h.synced = map[string]bool{}
		if err := p.Load(t.Context()); err != nil {
			t.Errorf("load: %v", err)
		}
		if v, err := p.Get(t.Context(), "db"); err != nil || !strings.Contains(v.Problem, "ReadWriteOften") || h.synced[Name] {
			t.Errorf("%+v, %v, synced %v", v, err, h.synced)
		}
		if found := p.Problems(); len(found) != 1 || found[0].Where != "volume db" || !strings.Contains(found[0].Text, "ReadWriteOften") {
			t.Errorf("problems: %v", found)
		}
		if _, err := p.Mount(t.Context(), "log", "c"); err != nil {
			t.Error(err)
		}
	})
}
