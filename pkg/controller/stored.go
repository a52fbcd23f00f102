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

// Bounds of what a driver lists.
const (
	// listDeadline is how long one driver may take for all of it.
	listDeadline = 2 * time.Minute
	// maxStored is how many volumes, or snapshots, are taken of one driver.
	maxStored = 100_000
	// maxListings is how often a list is begun anew whose next page the driver has lost.
	maxListings = 3
)

// errEndless is a list that does not end.
var errEndless = errors.New("the list does not end")

// Stored is a volume or a snapshot that a driver has in its storage.
type Stored struct {
	// Handle is its CSI volume_id or snapshot_id.
	Handle string
	// Snapshot: it is one, and Of the volume that it was made of.
	Snapshot bool
	Of       string
	// SizeBytes is 0, and Created zero, where the driver does not say.
	SizeBytes int64
	Created   time.Time
	// Owner is the claim or snapshot whose record has it, for people; "" for none.
	Owner string
}

// Listing is what one driver has, or why that is not known whole.
type Listing struct {
	Driver state.DriverName
	Stored []Stored
	// Unlisted says what is not in Stored and why, for people; "" where all is.
	Unlisted string
	// Unsure names a claim or snapshot that is being made: what it will have may be in
	// Stored already, without an Owner. "" for none.
	Unsure string
}

// lister is a driver that is asked for all that it has.
type lister struct {
	driver  Driver
	caps    caps
	problem string // why it cannot be asked
}

// Stored asks every driver that is up for all volumes and snapshots in its storage (CSI 1.13
// ListVolumes, ListSnapshots), sorted by driver. They may be other nodes', too. It changes
// nothing. Each driver has two minutes; one that fails is told of in its Listing.
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
	// The records are read when the drivers have answered: what was made meanwhile has an owner.
	if err := c.read(ctx, func() { c.setOwners(out) }); err != nil {
		return nil, fmt.Errorf("list what drivers have: %w", err)
	}
	return out, nil
}

// read has f run in Run's goroutine, and waits for it. After an error f may run yet.
func (c *Controller) read(ctx context.Context, f func()) error {
	return c.do(ctx, func(context.Context) error { f(); return nil })
}

// listers are the drivers that have a Controller service. It runs in Run's goroutine.
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

// own says of what drivers have which record has it. It runs in Run's goroutine.
func (c *Controller) setOwners(listings []Listing) {
	for i := range listings {
		l := &listings[i]
		volumes, snapshots := map[string]string{}, map[string]string{}
		for key, e := range c.entries {
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

// pager asks for the page at a token, and returns the next one's, "" after the last.
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

// pages follows a list to its end. A driver that has lost a page answers ABORTED, and the
// list is begun anew (CSI 1.13 ListVolumes Errors).
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
