package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// listVolumes returns one volume a page.
func (b *backend) listVolumes(req *csi.ListVolumesRequest) (proto.Message, error) {
	var all []*stored
	for _, v := range b.volumes {
		all = append(all, v)
	}
	slices.SortFunc(all, func(x, y *stored) int { return cmp.Compare(x.handle, y.handle) })
	at := 0
	if t := req.GetStartingToken(); t != "" {
		at, _ = strconv.Atoi(t)
	}
	resp := &csi.ListVolumesResponse{}
	if at < len(all) {
		resp.Entries = []*csi.ListVolumesResponse_Entry{{Volume: &csi.Volume{VolumeId: all[at].handle, CapacityBytes: all[at].bytes}}}
	}
	if at+1 < len(all) {
		resp.NextToken = strconv.Itoa(at + 1)
	}
	return resp, nil
}

func lists(b *backend) *backend {
	b.rpcs = append(b.rpcs, csi.ControllerServiceCapability_RPC_LIST_VOLUMES, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
	return b
}

// storage returns the listing of the only driver.
func (h *fakeNode) storage() Listing {
	h.t.Helper()
	all, err := h.c.Stored(h.t.Context())
	if err != nil || len(all) != 1 {
		h.t.Fatalf("got %+v, %v", all, err)
	}
	return all[0]
}

// The listing has everything that a driver has, page by page, with the claim or snapshot whose record names it, also
// if that was made during the listing. What no record names has no owner.
func TestWhatDriversHaveIsListedWithItsOwner(t *testing.T) {
	b := lists(newBackend())
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		settleFor(time.Minute)
		b.set(func() {
			b.volumes["orphan"] = &stored{handle: "vol-9", bytes: 2 * mib}
			b.cuts["orphan"] = &csi.Snapshot{SnapshotId: "cut-9", SourceVolumeId: "vol-9"}
		})
		got := h.storage()
		want := Listing{Driver: b.name, Stored: []Stored{
			{Handle: "vol-1", SizeBytes: mib, Owner: "claim default/a"},
			{Handle: "vol-9", SizeBytes: 2 * mib},
			{Handle: "cut-2", Snapshot: true, Of: "vol-1", SizeBytes: mib, Created: time.Unix(1e9, 0).UTC(), Owner: "snapshot default/s"},
			{Handle: "cut-9", Snapshot: true, Of: "vol-9"},
		}}
		if d := gocmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		release := make(chan struct{})
		b.fault = onCall("ListVolumes", func(string, proto.Message) fault { return fault{wait: release} })
		h.c.SetClaim(testClaim("late", mib))
		late := make(chan Listing)
		go func() {
			all, err := h.c.Stored(t.Context())
			if err != nil {
				t.Error(err)
			}
			late <- all[0]
		}()
		synctest.Wait()
		close(release)
		for _, s := range (<-late).Stored {
			if !strings.HasSuffix(s.Handle, "-9") && s.Owner == "" {
				t.Errorf("made while the driver listed: %+v has no owner", s)
			}
		}
		b.fault = onCall("CreateVolume", func(string, proto.Message) fault { return fault{after: status.Error(codes.Unavailable, "lost")} })
		h.set(testClaim("b", mib))
		if got := h.storage(); got.Unsure != "claim default/b" || got.Unlisted != "" {
			t.Errorf("while the answer to a CreateVolume is not known: %+v", got)
		}
	})
}

// If a driver cannot list or fails, the listing says so, and still has what another call listed.
func TestWhatIsNotListedIsTold(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		if got := h.storage(); !strings.Contains(got.Unlisted, "it cannot list volumes (LIST_VOLUMES); it cannot list snapshots") {
			t.Errorf("without the capabilities: %+v", got)
		}
	})
	b = lists(newBackend())
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		b.fault = onCall("ListSnapshots", func(string, proto.Message) fault { return fault{before: status.Error(codes.Internal, "no disk")} })
		if got := h.storage(); !strings.Contains(got.Unlisted, "list snapshots (LIST_SNAPSHOTS)") || !strings.Contains(got.Unlisted, "no disk") ||
			len(got.Stored) != 1 {
			t.Errorf("a driver that fails: %+v", got)
		}
		b.fault = onCall("ListVolumes", func(string, proto.Message) fault { return fault{wait: make(chan struct{})} })
		if got := h.storage(); !strings.Contains(got.Unlisted, "deadline") {
			t.Errorf("a driver that hangs: %+v", got)
		}
		h.c.DriverDown(b.name)
		if all, err := h.c.Stored(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("without a driver: %+v, %v", all, err)
		}
	})
	b.services = nil
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		if all, err := h.c.Stored(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("of a driver without a Controller service: %+v, %v", all, err)
		}
	})
}

// The controller reads a list to its end, begins again if the driver has lost its place, and never reads on without
// end.
func TestListsEnd(t *testing.T) {
	page := func(n int) []Stored { return []Stored{{Handle: fmt.Sprint(n)}} }
	lost := status.Error(codes.Aborted, "lost")
	calls := 0
	for name, c := range map[string]struct {
		ask   pager
		want  int
		err   error
		calls int
	}{
		"empty": {ask: func(context.Context, string) ([]Stored, string, error) { return nil, "", nil }, calls: 1},
		"an empty page": {ask: func(_ context.Context, t string) ([]Stored, string, error) {
			return nil, map[string]string{"": "1"}[t], nil
		}, calls: 2},
		"three pages": {ask: func(_ context.Context, t string) ([]Stored, string, error) {
			return page(len(t)), map[string]string{"": "x", "x": "xx"}[t], nil
		}, want: 3, calls: 3},
		"leads back": {ask: func(context.Context, string) ([]Stored, string, error) { return page(1), "x", nil }, err: errEndless, calls: 2},
		"to its begin": {ask: func(_ context.Context, t string) ([]Stored, string, error) {
			return page(1), map[string]string{"": "x", "x": "y", "y": "x"}[t], nil
		}, err: errEndless, calls: 3},
		"without end": {ask: func(context.Context, string) ([]Stored, string, error) {
			return make([]Stored, maxStored), fmt.Sprint(calls), nil
		}, err: errEndless, calls: 2},
		"empty pages":   {ask: func(context.Context, string) ([]Stored, string, error) { return nil, fmt.Sprint(calls), nil }, err: errEndless, calls: maxStored + 1},
		"lost for ever": {ask: func(context.Context, string) ([]Stored, string, error) { return nil, "", lost }, err: lost, calls: maxListings},
		"lost once": {ask: func(_ context.Context, t string) ([]Stored, string, error) {
			if calls == 2 {
				return nil, "", lost
			}
			return page(1), map[string]string{"": "x"}[t], nil
		}, want: 2, calls: 4},
	} {
		calls = 0
		got, err := listAll(t.Context(), func(ctx context.Context, token string) ([]Stored, string, error) {
			calls++
			return c.ask(ctx, token)
		})
		if len(got) != c.want || !errors.Is(err, c.err) || calls != c.calls {
			t.Errorf("%s: %d entries, %v, by %d calls", name, len(got), err, calls)
		}
	}
}
