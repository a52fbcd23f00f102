package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Limits for lists from a driver.
const (
	// listDeadline bounds listing everything at one driver.
	listDeadline = 2 * time.Minute
	// maxStored limits the volumes, and the snapshots, taken from one driver.
	maxStored = 100_000
	// maxListings limits how often a list is restarted because the driver has lost its next page.
	maxListings = 3
)

// errEndless means that a driver's list does not end.
var errEndless = errors.New("the list does not end")

// Stored is a volume or a snapshot in a driver's storage.
type Stored struct {
	// Handle is the CSI volume_id or snapshot_id.
	Handle string
	// Snapshot is true for a snapshot; Of is the volume that it was made from.
	Snapshot bool
	Of       string
	// SizeBytes is 0 and Created zero if the driver does not report them.
	SizeBytes int64
	Created   time.Time
	// Owner is the claim or snapshot whose record names it, for people; or "".
	Owner string
}

// Listing is what one driver has in its storage.
type Listing struct {
	Driver state.DriverName
	Stored []Stored
	// Unlisted says what Stored lacks and why, for people; "" if it is complete.
	Unlisted string
	// Unsure is a claim or snapshot that is being made, or "". What the driver makes for it may be
	// in Stored already, without an Owner.
	Unsure string
}

// lister lists what one driver has.
type lister struct {
	driver  Driver
	caps    caps
	problem string // why the driver cannot be asked, or ""
}

// Stored asks every driver that is up for all volumes and snapshots in its storage (CSI 1.13
// ListVolumes, ListSnapshots), sorted by driver. They may include those of other nodes. Stored
// changes nothing. Each driver has two minutes; its Listing reports a failure.
func (c *Controller) Stored(ctx context.Context) ([]Listing, error) {
	var all []lister
	if err := c.read(ctx, func() { all = c.listers() }); err != nil {
		return nil, fmt.Errorf("list what drivers have: %w", err)
	}
	out := make([]Listing, len(all))
	var asked sync.WaitGroup
	for i, l := range all {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, listDeadline)
			defer cancel()
			out[i] = l.list(ctx)
		})
	}
	asked.Wait()
	// Read the records after the drivers have answered, so that what was made meanwhile has an
	// owner.
	if err := c.read(ctx, func() { c.setOwners(out) }); err != nil {
		return nil, fmt.Errorf("list what drivers have: %w", err)
	}
	return out, nil
}

// read runs f in Run's goroutine and waits for it. After an error, f may still run later.
func (c *Controller) read(ctx context.Context, f func()) error {
	return c.do(ctx, func(context.Context) error { f(); return nil })
}

// listers returns the drivers that have a Controller service. It runs in Run's goroutine.
func (c *Controller) listers() (all []lister) {
	for _, d := range c.drivers {
		if d.known && !d.caps.Controller {
			continue
		}
		c.ensureAsked(d)
		all = append(all, lister{d.Driver, d.caps, d.problem()})
	}
	slices.SortFunc(all, func(a, b lister) int { return cmp.Compare(a.driver.Name, b.driver.Name) })
	return all
}

// setOwners sets the owners in listings from the records. It runs in Run's goroutine.
func (c *Controller) setOwners(listings []Listing) {
	for i := range listings {
		l := &listings[i]
		volumes, snapshots := map[string]string{}, map[string]string{}
		for key, e := range c.claims.entries {
			switch {
			case driverOf(e) != l.Driver:
			case e.rec.Handle != "":
				volumes[e.rec.Handle] = "claim " + key.String()
			case e.rec.Volume.Phase == state.Entering:
				l.Unsure = "claim " + key.String()
			}
		}
		for key, e := range c.snapshots.entries {
			switch {
			case e.driver() != l.Driver:
			case e.rec.Handle != "":
				snapshots[e.rec.Handle] = "snapshot " + key.String()
			case e.rec.Content.Phase == state.Entering:
				l.Unsure = "snapshot " + key.String()
			}
		}
		for j, s := range l.Stored {
			if s.Snapshot {
				l.Stored[j].Owner = snapshots[s.Handle]
			} else {
				l.Stored[j].Owner = volumes[s.Handle]
			}
		}
	}
}

// list asks one driver.
func (l lister) list(ctx context.Context) Listing {
	out := Listing{Driver: l.driver.Name, Unlisted: l.problem}
	if l.problem != "" {
		return out
	}
	var missing []string
	for _, kind := range []struct {
		words string
		can   bool
		page  pager
	}{
		{"volumes (LIST_VOLUMES)", l.caps.ListVolumes, l.volumesPage},
		{"snapshots (LIST_SNAPSHOTS)", l.caps.ListSnapshots, l.snapshotsPage},
	} {
		if !kind.can {
			missing = append(missing, "it cannot list "+kind.words)
			continue
		}
		found, err := listAll(ctx, kind.page)
		if err != nil {
			missing = append(missing, fmt.Sprintf("list %s: %v", kind.words, err))
			continue
		}
		out.Stored = append(out.Stored, found...)
	}
	out.Unlisted = strings.Join(missing, "; ")
	return out
}

// pager requests the page at token and returns it with the next token, which is "" after the last
// page.
type pager func(ctx context.Context, token string) (page []Stored, next string, err error)

func (l lister) volumesPage(ctx context.Context, token string) (page []Stored, next string, err error) {
	client := csi.NewControllerClient(l.driver.Conn)
	resp, err := client.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: token})
	for _, e := range resp.GetEntries() {
		v := e.GetVolume()
		page = append(page, Stored{Handle: v.GetVolumeId(), SizeBytes: v.GetCapacityBytes()})
	}
	return page, resp.GetNextToken(), err
}

func (l lister) snapshotsPage(ctx context.Context, token string) (page []Stored, next string, err error) {
	client := csi.NewControllerClient(l.driver.Conn)
	resp, err := client.ListSnapshots(ctx, &csi.ListSnapshotsRequest{StartingToken: token})
	for _, e := range resp.GetEntries() {
		s := e.GetSnapshot()
		one := Stored{
			Handle: s.GetSnapshotId(), Snapshot: true, Of: s.GetSourceVolumeId(),
			SizeBytes: s.GetSizeBytes(),
		}
		if at := s.GetCreationTime(); at != nil {
			one.Created = at.AsTime()
		}
		page = append(page, one)
	}
	return page, resp.GetNextToken(), err
}

// listAll follows a list to its end. It restarts the list if the driver answers ABORTED because it
// has lost a page (CSI 1.13 ListVolumes Errors).
func listAll(ctx context.Context, ask pager) ([]Stored, error) {
	var err error
	for range maxListings {
		var all []Stored
		if all, err = listOnce(ctx, ask); status.Code(err) != codes.Aborted {
			return all, err
		}
	}
	return nil, err
}

func listOnce(ctx context.Context, ask pager) (all []Stored, err error) {
	asked := map[string]bool{}
	for token := ""; ; {
		page, next, err := ask(ctx, token)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		asked[token] = true
		switch token = next; {
		case token == "":
			return all, nil
		case asked[token]:
			return nil, fmt.Errorf("%w: next_token %q leads back", errEndless, token)
		case len(all) > maxStored, len(asked) > maxStored:
			return nil, fmt.Errorf("%w: it has more than %d entries or pages", errEndless, maxStored)
		}
	}
}
