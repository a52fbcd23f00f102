package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a journal in memory that can die: after a number of commits, every commit fails.
type disk struct {
	mu      sync.Mutex
	values  map[string][]byte
	commits int
	dieAt   int    // 0: never
	torn    bool   // the commit at which it dies is durable all the same
	onDeath func() // called once, at death
	// unreadable maps the keys of unreadable values to the reason.
	unreadable map[string]string
	broken     error  // if set, every commit fails with it
	refuses    string // commits to this bucket fail; "" for none
	// cuts has the records of snapshots, groups those of group snapshots, attached those of attached volumes without a claim.
	cuts, groups, attached map[string][]byte
}

func newDisk() *disk {
	return &disk{values: map[string][]byte{}, cuts: map[string][]byte{}, groups: map[string][]byte{}, attached: map[string][]byte{}}
}

var errDead = errors.New("the disk is dead")

func (d *disk) LoadBucket(_ context.Context, bucket string) (state.Values, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch bucket {
	case SnapshotBucket:
		return state.Values{Sound: maps.Clone(d.cuts)}, nil
	case GroupBucket:
		return state.Values{Sound: maps.Clone(d.groups)}, nil
	case AttachmentBucket:
		return state.Values{Sound: maps.Clone(d.attached)}, nil
	}
	return state.Values{Sound: maps.Clone(d.values), Unreadable: maps.Clone(d.unreadable)}, nil
}

func (d *disk) CommitBucket(_ context.Context, bucket string, changes map[string][]byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	if bucket == d.refuses {
		return errDead
	}
	d.commits++
	dies := d.dieAt > 0 && d.commits >= d.dieAt
	if dies && d.commits == d.dieAt && d.onDeath != nil {
		d.onDeath()
	}
	if dies && !(d.torn && d.commits == d.dieAt) {
		return errDead
	}
	values := d.values
	switch bucket {
	case SnapshotBucket:
		values = d.cuts
	case GroupBucket:
		values = d.groups
	case AttachmentBucket:
		values = d.attached
	}
	for key, value := range changes {
		if value == nil {
			delete(values, key)
		} else {
			values[key] = slices.Clone(value)
		}
	}
	if dies {
		return errDead
	}
	return nil
}

// fail makes every commit fail with err; nil repairs the disk.
func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = err
}

// refuse makes every commit of a bucket fail; "" repairs the disk.
func (d *disk) refuse(bucket string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuses = bucket
}

// count returns the number of records in a bucket.
func (d *disk) count(bucket string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch bucket {
	case GroupBucket:
		return len(d.groups)
	case AttachmentBucket:
		return len(d.attached)
	}
	return len(d.cuts)
}

// records returns the claims' records on the disk.
func (d *disk) records() map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.values)
}

// usage is a fake Usage whose answers the test sets.
type usage struct {
	mu            sync.Mutex
	wanted, inUse map[string]string
	listed        map[string]string
}

func (u *usage) Listed(_ Key, id state.VolumeID, _ string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.listed[string(id)]
}

func (u *usage) Wanted(claim Key) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.wanted[claim.String()]
}

func (u *usage) InUse(id state.VolumeID, _ string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.inUse[string(id)]
}

func (u *usage) set(m *map[string]string, key, by string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = by
}

// safe is a set of secrets. A nil one does not exist; one that is not there cannot be read.
type safe map[state.SecretRef]map[string]string

func (s safe) Secret(_ context.Context, ref state.SecretRef) (map[string]string, error) {
	switch v, ok := s[ref]; {
	case !ok:
		return nil, errors.New("the API server is away")
	case v == nil:
		return nil, ErrNoSecret
	default:
		return v, nil
	}
}

// fakeNode is one life of a Controller with a backend that outlives it.
type fakeNode struct {
	t       *testing.T
	c       *Controller
	disk    *disk
	lazy    bool // drivers are asked for their capabilities on demand
	lost    func() bool
	naming  naming
	backend *backend
	usage   *usage
	secrets safe
	logs    *bytes.Buffer
	cancel  context.CancelFunc
	ended   chan error
}

// newFakeNode begins a first life. It must run in a synctest bubble.
func newFakeNode(t *testing.T, b *backend) *fakeNode {
	h := &fakeNode{t: t, disk: newDisk(), backend: b, usage: &usage{}, secrets: safe{}, logs: &bytes.Buffer{}}
	h.live()
	return h
}

// live begins a life, in which the driver is not up yet.
func (h *fakeNode) live() {
	h.t.Helper()
	h.c = New(Config{
		StorageID: func(context.Context) (string, string, error) { return h.naming.storage, h.naming.missing, nil },
		KV:        h.disk, Secrets: h.secrets, Usage: h.usage, MaxCalls: 4, OnDemand: h.lazy, Lost: h.lost,
		Logger: slog.New(slog.NewTextHandler(h.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err := h.c.ChooseStorageID(context.Background()); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel, h.ended = cancel, make(chan error, 1)
	go func() { h.ended <- h.c.Run(ctx) }()
	synctest.Wait()
}

// end ends the life and checks that the backend saw no violation.
func (h *fakeNode) end() {
	h.t.Helper()
	h.cancel()
	if err := <-h.ended; err != nil {
		h.t.Errorf("Run: %v", err)
	}
	h.backend.check(h.t)
}

// up registers the driver and lets everything settle.
func (h *fakeNode) up() {
	h.c.DriverUp(h.backend.driver())
	synctest.Wait()
}

func (h *fakeNode) set(c Claim) {
	h.c.SetClaim(c)
	synctest.Wait()
}

func (h *fakeNode) status(key Key) ClaimStatus {
	h.t.Helper()
	s, ok := h.c.Claim(key)
	if !ok {
		h.t.Fatalf("claim %s: not listed; have %+v", key, h.c.Claims())
	}
	return s
}

// bound returns the volume of a claim that must be bound.
func (h *fakeNode) bound(key Key) Volume {
	h.t.Helper()
	s := h.status(key)
	if s.Phase != Bound || s.Volume == nil {
		h.t.Fatalf("claim %s: phase %s, reason %q, retry %+v; want Bound", key, s.Phase, s.Reason, s.Retry)
	}
	return *s.Volume
}

const mib = int64(1) << 20

func testKey(name string) Key { return Key{Namespace: "default", Name: name} }

func testClaim(name string, bytes int64) Claim {
	return Claim{
		Key: testKey(name), UID: "uid-" + name, SizeBytes: bytes,
		AccessModes: []state.AccessMode{state.ReadWriteOnce}, Mode: state.Filesystem,
		Class: Class{
			Name: "fast", Provisioner: "strict.example.com", AllowExpansion: true,
			Parameters: map[string]string{"kind": "ssd", "csi.storage.k8s.io/fstype": "xfs"},
		},
	}
}

// bubble runs f in a synctest bubble with a fakeNode around backend b.
func bubble(t *testing.T, b *backend, f func(t *testing.T, h *fakeNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t, b)
		f(t, h)
		h.end()
	})
}

// volumeOf returns the record that a manager would have of v.
func volumeOf(v Volume) state.Volume {
	return state.Volume{ID: v.ID(), Spec: &state.Spec{
		Driver: v.Driver, Handle: v.Handle, Name: v.Name, Mode: v.Mode, FSType: v.FSType,
		AccessModes: v.AccessModes, Context: v.Context, AttachRef: v.AttachSecret,
	}}
}

func wantCalls(t *testing.T, b *backend, want ...string) {
	t.Helper()
	if got := b.calls(); !slices.Equal(got, want) {
		t.Errorf("calls:\n got %q\nwant %q", got, want)
	}
}

// settleFor lets every timer fire that is due within d.
func settleFor(d time.Duration) {
	time.Sleep(d) // in the bubble's time
	synctest.Wait()
}
