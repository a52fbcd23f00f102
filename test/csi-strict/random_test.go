package csistrict

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	co "github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const randomDriver = "random.example.com"

// direct is a connection to a driver in this process, which loses calls and answers.
type direct struct {
	d    *Driver
	mu   sync.Mutex
	luck *rand.Rand // nil: nothing is lost
}

// fate is what happens to a call: how long it takes, and whether it or its answer is lost.
func (c *direct) fate() (took time.Duration, before, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.luck == nil {
		return 0, false, false
	}
	n := c.luck.IntN(8)
	return time.Duration(c.luck.IntN(3000)) * time.Millisecond, n == 0, n == 1
}

// Invoke implements grpc.ClientConnInterface.
func (c *direct) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	took, before, after := c.fate()
	if before {
		return status.Error(codes.Unavailable, "the connection was refused")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv, desc := c.service(method)
	for _, m := range desc.Methods {
		if !strings.HasSuffix(method, "/"+m.MethodName) {
			continue
		}
		into := func(req any) error { proto.Merge(req.(proto.Message), args.(proto.Message)); return nil }
		resp, err := m.Handler(srv, ctx, into, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return c.d.intercept(ctx, "", req, info, func(ctx context.Context, req any) (any, error) {
				select {
				case <-time.After(took):
				case <-ctx.Done():
					return nil, status.FromContextError(ctx.Err()).Err()
				}
				resp, err := handler(ctx, req)
				if after {
					cancel()
				}
				return resp, err
			})
		})
		switch {
		case after:
			return status.Error(codes.DeadlineExceeded, "the answer was lost")
		case err != nil:
			return err
		}
		proto.Merge(reply.(proto.Message), resp.(proto.Message))
		return nil
	}
	return status.Error(codes.Unimplemented, method)
}

func (c *direct) service(method string) (any, grpc.ServiceDesc) {
	switch {
	case strings.Contains(method, ".Identity/"):
		return &identity{driver: c.d}, csi.Identity_ServiceDesc
	case strings.Contains(method, ".Node/"):
		return &node{driver: c.d}, csi.Node_ServiceDesc
	case strings.Contains(method, ".GroupController/"):
		return &groupController{driver: c.d}, csi.GroupController_ServiceDesc
	}
	return &controller{driver: c.d}, csi.Controller_ServiceDesc
}

// NewStream implements grpc.ClientConnInterface; no call that is made here streams.
func (c *direct) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams")
}

// others are the controller's dependencies: there is no secret, no pod, and no file system to freeze.
type others struct{}

func (others) Secret(context.Context, state.SecretRef) (map[string]string, error) { return nil, nil }
func (others) InUse(state.VolumeID, string) string                                { return "" }
func (others) Listed(co.Key, state.VolumeID, string) string                       { return "" }
func (others) Wanted(co.Key) string                                               { return "" }

func (others) Run(context.Context) error { return nil }

func (others) Freeze(context.Context, state.VolumeID, time.Duration) (func(context.Context) bool, error) {
	return func(context.Context) bool { return false }, nil
}

// world is a controller, its driver, and random claims and snapshots.
type world struct {
	t       *testing.T
	luck    *rand.Rand
	conn    *direct
	journal *journal.Memory
	c       *co.Controller
	die     func()
	uids    int
	claims  map[string]co.Claim
	cuts    map[string]co.Snapshot
	groups  map[string]co.Group
	leaving map[state.VolumeID]bool // a detachment that has not succeeded yet
}

func (w *world) live() {
	w.c = co.New(co.Config{KV: w.journal, Secrets: others{}, Usage: others{}, Freezer: others{}, Deadline: 10 * time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.c.Run(ctx) }()
	w.die = func() { cancel(); <-ended }
	<-w.c.Loaded()
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		w.c.SetClaim(w.claims[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.cuts)) {
		w.c.SetSnapshot(w.cuts[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.groups)) {
		w.c.SetGroup(w.groups[name])
	}
	w.c.DriverUp(co.Driver{Name: randomDriver, Conn: w.conn, NodeID: "node-1"})
}

func key(name string) co.Key { return co.Key{Namespace: "default", Name: name} }

func (w *world) uid() string { w.uids++; return strconv.Itoa(w.uids) }

// claim returns a new or changed claim with a name.
func (w *world) claim(name string) {
	c, ok := w.claims[name]
	if !ok {
		c = co.Claim{
			Key: key(name), UID: w.uid(), SizeBytes: 1 << 20, Mode: state.Filesystem, AccessModes: []state.AccessMode{state.ReadWriteOnce},
			Class: co.Class{Name: "c", Provisioner: randomDriver, AllowExpansion: true},
		}
		other := fmt.Sprint("claim-", w.luck.IntN(6))
		switch n := w.luck.IntN(4); {
		case n == 0 && w.claims[other].Source == nil: // a copy is larger than its source, since the source may grow
			c.Source, c.SizeBytes = &co.DataSource{Claim: key(other)}, 1<<30
		case n == 1:
			c.Source, c.SizeBytes = &co.DataSource{Snapshot: key(fmt.Sprint("cut-", w.luck.IntN(4)))}, 1<<30
		case n == 2:
			one := fmt.Sprintf("group-%d-claim-%d", w.luck.IntN(2), w.luck.IntN(6))
			c.Source, c.SizeBytes = &co.DataSource{Snapshot: key(one)}, 1<<30
		}
	}
	switch w.luck.IntN(3) {
	case 0:
		c.SizeBytes += 1 << 20
	case 1:
		tier := fmt.Sprint("tier-", w.luck.IntN(3))
		c.Attributes = co.AttributesClass{
			Driver: randomDriver, Attributes: co.Attributes{Class: tier, Parameters: map[string]string{"tier": tier}},
		}
	}
	w.claims[name] = c
	w.c.SetClaim(c)
}

// cut asks for a snapshot of a claim that has a volume.
func (w *world) cut(name string) {
	if _, ok := w.cuts[name]; ok {
		return
	}
	of := fmt.Sprint("claim-", w.luck.IntN(6))
	s, ok := w.c.Claim(key(of))
	if !ok || s.Volume == nil || w.claims[of].Source != nil {
		return
	}
	cut := co.Snapshot{
		Key: key(name), UID: w.uid(), Claim: key(of), Volume: s.Volume.Handle, Class: co.SnapshotClass{Name: "s", Driver: randomDriver},
	}
	w.cuts[name] = cut
	w.c.SetSnapshot(cut)
}

// group asks for snapshots of all or some claims that have a volume and are no copies.
func (w *world) group(name string) {
	if _, ok := w.groups[name]; ok {
		return
	}
	g := co.Group{Key: key(name), UID: w.uid(), Freeze: time.Second, Class: co.SnapshotClass{Name: "g", Driver: randomDriver}}
	for n := range 6 {
		of := fmt.Sprint("claim-", n)
		s, ok := w.c.Claim(key(of))
		if ok && s.Volume != nil && w.claims[of].Source == nil && w.luck.IntN(3) > 0 {
			g.Members = append(g.Members, co.Member{Claim: key(of), Volume: s.Volume.Handle})
		}
	}
	if len(g.Members) > 0 {
		w.groups[name] = g
		w.c.SetGroup(g)
	}
}

func (d *Driver) judged() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// step does one thing at random.
func (w *world) step() {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	claim, cut := fmt.Sprint("claim-", w.luck.IntN(6)), fmt.Sprint("cut-", w.luck.IntN(4))
	group := fmt.Sprint("group-", w.luck.IntN(2))
	switch w.luck.IntN(15) {
	case 0, 1, 2, 3:
		w.claim(claim)
	case 4, 5:
		w.cut(cut)
	case 6:
		delete(w.claims, claim)
		w.c.RemoveClaim(key(claim))
		_ = w.c.Delete(ctx, key(claim), true)
	case 7:
		delete(w.cuts, cut)
		w.c.RemoveSnapshot(key(cut))
		_ = w.c.DeleteSnapshot(ctx, key(cut), true)
	case 8, 9:
		if s, ok := w.c.Claim(key(claim)); ok && s.Volume != nil {
			w.attach(ctx, *s.Volume)
		}
	case 10:
		w.c.RetryNow(key(claim))
	case 11:
		if w.luck.IntN(4) == 0 {
			w.die()
			w.live()
		}
	case 12, 13:
		w.group(group)
	case 14:
		delete(w.groups, group)
		w.c.RemoveGroup(key(group))
		_ = w.c.DeleteGroup(ctx, key(group), true)
	}
	time.Sleep(time.Duration(w.luck.IntN(1500)) * time.Millisecond)
}

// attach attaches or detaches as the manager does: a detachment that has begun is repeated until it succeeds.
func (w *world) attach(ctx context.Context, v co.Volume) {
	volume := state.Volume{ID: v.ID(), Spec: &state.Spec{
		Driver: v.Driver, Handle: v.Handle, Name: v.Name, Mode: v.Mode, AccessModes: v.AccessModes, Context: v.Context,
	}}
	if w.luck.IntN(2) == 0 && !w.leaving[volume.ID] {
		_, _ = w.c.Attach(ctx, volume)
		return
	}
	w.leaving[volume.ID] = true
	if err := w.c.Detach(ctx, volume); err == nil {
		delete(w.leaving, volume.ID)
	}
}

// The controller's calls break no rule of the strict driver while calls and answers are lost at
// random, claims, snapshots, groups and attributes are added, changed and removed, and the daemon is
// killed, with and without a driver that makes groups. STRICT_CALLS is the number of calls, 1,000 by
// default.
func TestRandomCallsOfTheController(t *testing.T) {
	t.Run("groups", func(t *testing.T) {
		randomCalls(t, Script{With: []string{"MODIFY_VOLUME"}}, "CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot")
	})
	t.Run("alone", func(t *testing.T) {
		randomCalls(t, Script{With: []string{"MODIFY_VOLUME"}, Without: []string{"GROUP_CONTROLLER_SERVICE"}})
	})
}

func randomCalls(t *testing.T, script Script, also ...string) {
	most := uint64(1000)
	if text := os.Getenv("STRICT_CALLS"); text != "" {
		var err error
		if most, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("STRICT_CALLS=%s: %v", text, err)
		}
	}
	dir := t.TempDir()
	if err := WriteScript(dir, script); err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Name: randomDriver, NodeID: "node-1", StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		luck := rand.New(rand.NewPCG(1, 2))
		w := &world{
			t: t, luck: luck, conn: &direct{d: d, luck: rand.New(rand.NewPCG(3, 4))}, journal: journal.NewMemory(),
			claims: map[string]co.Claim{}, cuts: map[string]co.Snapshot{}, groups: map[string]co.Group{}, leaving: map[state.VolumeID]bool{},
		}
		w.live()
		for d.judged() < most {
			w.step()
		}
		w.die()
		synctest.Wait()
	})
	events, err := ReadTranscript(dir)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	breaches := 0
	for _, e := range events {
		switch e.Event {
		case EventEnd:
			calls[e.Call+" "+e.Code]++
		case EventBreach:
			if breaches++; breaches < 10 {
				t.Errorf("%s of %s: %s: %s", e.Call, e.Volume, e.Rule, e.Text)
			}
		}
	}
	for _, name := range append(also,
		"CreateVolume", "ControllerExpandVolume", "ControllerModifyVolume", "ControllerPublishVolume", "ControllerUnpublishVolume",
		"CreateSnapshot", "DeleteSnapshot", "DeleteVolume",
	) {
		if calls[name+" OK"] == 0 {
			t.Errorf("no %s succeeded: the calls are not those that the test is of", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		t.Logf("%6d %s", calls[name], name)
	}
	t.Logf("%d calls, %d complaints", d.judged(), breaches)
}
