package operate

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/schedule"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// cuts is a driver that makes snapshots.
type cuts struct{ grpc.ClientConnInterface }

func (cuts) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	switch args := args.(type) {
	case *csi.GetPluginCapabilitiesRequest:
		reply.(*csi.GetPluginCapabilitiesResponse).Capabilities = []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}}}
	case *csi.ControllerGetCapabilitiesRequest:
		reply.(*csi.ControllerGetCapabilitiesResponse).Capabilities = []*csi.ControllerServiceCapability{{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
				Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
			}},
		}}
	case *csi.CreateSnapshotRequest:
		reply.(*csi.CreateSnapshotResponse).Snapshot = &csi.Snapshot{
			SnapshotId: args.GetName(), SourceVolumeId: args.GetSourceVolumeId(), ReadyToUse: true,
		}
	}
	return nil
}

// kernel is a kernel without mounts.
type kernel struct{ manager.Kernel }

// objectsOf returns the objects of a node whose controller and manager run until ctx ends.
func objectsOf(ctx context.Context, t *testing.T) (*Objects, *controller.Controller) {
	t.Helper()
	var none nothing
	quiet := slog.New(slog.DiscardHandler)
	catalog := source.New(source.Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: none})
	c := controller.New(controller.Config{KV: journal.NewMemory(), Usage: none})
	m, err := manager.New(manager.Config{Store: journal.NewMemory(), Kernel: kernel{}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []func(context.Context) error{c.Run, m.Run} {
		go func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
	applied := api.New(api.Config{Catalog: catalog, KV: journal.NewMemory(), SecretsDir: t.TempDir()})
	if err := applied.Load(ctx); err != nil {
		t.Fatal(err)
	}
	loaded := make(chan struct{})
	close(loaded)
	return NewObjects(ObjectsConfig{
		API: applied, Catalog: catalog, Controller: c, Manager: m, Usage: none, Loaded: loaded, Journal: journal.NewMemory(),
		Audit: audit.Open(t.TempDir(), nil), Silent: func() []string { return nil }, Changed: c.Changed, Logger: quiet,
	}), c
}

// A schedule does not wait for ever for a snapshot that stays: one of a class with Retain whose object is gone already,
// because a person deleted it, or because the schedule did and could not record that.
func TestAScheduleLeavesARetainedSnapshotToItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		o, c := objectsOf(ctx, t)
		c.DriverUp(controller.Driver{Name: "d", Conn: cuts{}})
		key := controller.Key{Namespace: "shop", Name: "daily-1"}
		c.SetSnapshot(controller.Snapshot{
			Key: key, UID: "u", Claim: controller.Key{Namespace: "shop", Name: "data"}, Volume: "v",
			Class: controller.SnapshotClass{Name: "keep", Driver: "d", Retain: true},
		})
		synctest.Wait()
		c.RemoveSnapshot(key) // a person deleted the object
		synctest.Wait()
		if s, _ := c.Snapshot(key); s.Phase != controller.Released || s.Handle == "" {
			t.Fatalf("the snapshot: %+v", s)
		}
		s := schedule.Schedule{Namespace: "shop", Name: "daily", Claim: "data", Every: schedule.Daily, Keep: 1}
		if err := o.dropSnapshot(ctx, s, key.Name); !errors.Is(err, schedule.ErrKept) {
			t.Errorf("the schedule is told %v, want %v", err, schedule.ErrKept)
		}
		_, err := o.DeleteSnapshot(ctx, audit.By{}, server.SnapshotDeletion{Namespace: "shop", Name: key.Name})
		if !errors.Is(err, server.ErrConflict) {
			t.Errorf("a person is told %v, want %v", err, server.ErrConflict)
		}
	})
}

// A schedule's name does not pass to another claim, and a lower number that may delete snapshots wants a word; both are a
// conflict that says the next command.
func TestAScheduleThatWouldTakeSnapshotsAwayIsAConflict(t *testing.T) {
	var none nothing
	catalog := source.New(source.Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: none})
	for _, name := range []string{"data", "other"} {
		err := catalog.Put(file.Name, &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	o := NewObjects(ObjectsConfig{
		Catalog: catalog, Controller: controller.New(controller.Config{KV: journal.NewMemory(), Usage: none}), Journal: journal.NewMemory(),
	})
	for _, c := range []struct {
		claim string
		keep  int
		sure  bool
		want  string // "" for no refusal
	}{
		{"data", 9, false, ""},
		{"data", 9, false, ""},
		{"other", 9, true, "csi-volmgr delete schedule s -n shop"},
		{"data", 1, false, "give it with --yes (deleteBeyond in a request)"}, // the controller has not spoken yet
		{"data", 1, true, ""},
		{"data", 9, false, ""},
	} {
		_, err := o.Schedules.SetSchedule(t.Context(), server.ScheduleRequest{
			Namespace: "shop", Name: "s", Claim: c.claim, Every: "daily", Keep: c.keep, DeleteBeyond: c.sure,
		})
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
