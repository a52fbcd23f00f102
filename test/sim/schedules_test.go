package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/schedule"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// kept is the claim that has a schedule. Its driver gives each volume a handle of its own, so that
// the volume of a claim that was deleted and applied again is another one.
const kept = "pvc-7"

// scheduleName begins the names of the schedule's snapshots.
const scheduleName = "sch"

// scheduled is the truth about the schedule.
type scheduled struct {
	// keep is the least number of snapshots that an operator may have set; spare is that of the
	// journal's spare copy.
	keep, spare int
	made        int // volumes of the claim, ever
}

// nameOf returns the name of a claim's volume at the storage.
func nameOf(id string) string {
	name, _, _ := strings.Cut(id, ".")
	return name
}

// handleFor returns the handle of the volume of that name, which may still have to be made; mu is
// held.
func (w *world) handleFor(name string) string {
	if name != kept {
		return name
	}
	if id := fmt.Sprintf("%s.%d", kept, w.schedule.made); w.backend[id] != nil {
		return id
	}
	w.schedule.made++
	return fmt.Sprintf("%s.%d", kept, w.schedule.made)
}

// sourceOfCut returns the claim that a snapshot is of.
func sourceOfCut(name string) string {
	if strings.HasPrefix(name, scheduleName+"-") {
		return kept
	}
	return "pvc-0"
}

// scheduler runs the schedules of one life of the daemon.
type scheduler struct {
	w *world
	l *life
	k *schedule.Keeper
}

func newScheduler(w *world, l *life, logger *slog.Logger) *scheduler {
	s := &scheduler{w: w, l: l}
	s.k = schedule.New(schedule.Config{
		Journal: claims{w, l}, Snapshots: s.snapshots, Volume: s.volume, Changed: l.c.Changed, Make: s.make, Delete: s.delete, Logger: logger,
	})
	w.schedule.spare = w.schedule.keep
	return s
}

// snapshots answers like the program.
func (s *scheduler) snapshots() (map[string]map[string]schedule.Known, bool) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if !s.l.claimed || len(s.l.spoken) < len(sources) {
		return nil, false
	}
	all := map[string]schedule.Known{}
	for name, listed := range s.w.cuts {
		if listed {
			all[name] = schedule.Known{}
		}
	}
	for _, c := range s.l.c.Snapshots() {
		all[c.Snapshot.Name] = schedule.Known{
			Ready: c.Ready, Deleting: c.Phase == controller.Deleting, Volume: schedule.Volume{ID: c.Volume, Mark: c.Mark},
			Kept: c.ReclaimPolicy == controller.Retain,
		}
	}
	return map[string]map[string]schedule.Known{"n": all}, true
}

func (s *scheduler) volume(_, claim string) schedule.Volume {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, v := range s.l.c.Volumes() {
		if v.Name == claim && v.Handle == s.l.handle(claim) {
			return schedule.Volume{ID: state.SharedID(volumes[claim].driver, v.Handle), Mark: v.Mark}
		}
	}
	return schedule.Volume{}
}

// handle returns the handle of a listed claim's volume, or ""; mu is held.
func (l *life) handle(claim string) string {
	for _, v := range l.c.Volumes() {
		if v.Name == claim && l.w.claims[claim] && !v.Released {
			return v.Handle
		}
	}
	return ""
}

func (s *scheduler) make(_ context.Context, _ schedule.Schedule, name string) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.l.dead {
		return errDead
	}
	s.w.cut(name)
	return nil
}

// delete deletes a snapshot as the program does: its object, then its data.
func (s *scheduler) delete(ctx context.Context, _ schedule.Schedule, name string) error {
	w := s.w
	w.mu.Lock()
	if s.l.dead || w.disk.lost {
		w.mu.Unlock()
		return errDead
	}
	w.judge.retired(name)
	w.cuts[name] = false
	s.l.c.RemoveSnapshot(keyOf(name))
	w.orders[aloneAs(name)]++
	w.asked[aloneAs(name)] = true
	w.count.groups["snapshot deleted by the schedule"]++
	w.mu.Unlock()
	err := s.l.c.DeleteSnapshot(ctx, keyOf(name), false)
	if errors.Is(err, controller.ErrNotFound) {
		return nil
	}
	return err
}

// retired checks that the schedule's retention takes a snapshot of the claim's present volume, and
// none of the number that an operator wants; mu is held.
func (j *judge) retired(name string) {
	w := j.w
	cut := w.shelf["snapshot-"+aloneAs(name)]
	if cut == nil {
		return
	}
	has := fmt.Sprintf("%s.%d", kept, w.schedule.made)
	if w.disk.damaged { // the claim may have the volume of an older journal again
		has = w.life.handle(kept)
	}
	if cut.from != has {
		w.breach("schedule: it deletes %s of volume %s, and its claim has volume %s", name, cut.from, has)
	}
	left := 0
	for _, other := range w.shelf {
		if other != cut && other.from == cut.from && other.looks < 0 && sourceOfCut(strings.ReplaceAll(other.owner, "_", "-")) == kept {
			left++
		}
	}
	if left < w.schedule.keep {
		w.breach("schedule: it deletes %s, and leaves %d of %d", name, left, w.schedule.keep)
	}
}

// tend makes the operator set the schedule; sure: snapshots beyond keep may go. mu is held.
func (w *world) tend(keep int, sure bool) {
	l, was := w.life, w.schedule.keep
	if l.dead {
		return
	}
	if was == 0 || keep < was {
		w.schedule.keep = keep
	}
	ready := 0
	for _, c := range l.c.Snapshots() {
		if of := state.SharedID("d", l.handle(kept)); c.Ready && c.Volume == of && c.Phase != controller.Deleting && sourceOfCut(c.Snapshot.Name) == kept {
			ready++
		}
	}
	go func() {
		_, err := l.schedules.k.Set(context.Background(), schedule.Schedule{
			Namespace: "n", Name: scheduleName, Claim: kept, Every: "10m", Keep: keep,
		}, sure)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case errors.Is(err, schedule.ErrDeletes):
			w.schedule.keep = was
		case err == nil && keep < was && !sure && ready > keep && !w.disk.damaged:
			w.breach("schedule: to keep %d of %d is accepted, and deletes snapshots without a word", keep, ready)
		case err == nil:
			w.schedule.keep = keep
		}
	}()
}

// untend ends the schedule; its snapshots stay.
func (w *world) untend() {
	w.mu.Lock()
	l := w.life
	w.mu.Unlock()
	if l.schedules == nil {
		return
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := l.schedules.k.Remove(context.Background(), "n", scheduleName); err != nil && !errors.Is(err, schedule.ErrNotFound) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.breach("schedule: it does not end: %v", err)
		}
	})
	ended.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range sortedKeys(w.cuts) {
		if c, _ := l.c.Snapshot(keyOf(name)); w.disk.damaged && w.cuts[name] && sourceOfCut(name) == kept && !c.Ready {
			delete(w.shelf, "snapshot-"+aloneAs(name)) // by hand: it is of a volume that the journal no longer knows
		}
	}
}

// tended checks that the schedule makes snapshots of the claim's present volume, and that no more
// stay than it should keep; mu is held.
func (w *world) tended() {
	l := w.life
	if l.schedules == nil || w.schedule.keep == 0 || w.disk.damaged || l.handle(kept) == "" {
		return
	}
	ready := 0
	for _, cut := range w.shelf {
		if cut.from == l.handle(kept) && cut.looks < 0 {
			ready++
		}
	}
	if ready == 0 {
		w.breach("schedule: claim %s has volume %s, and no snapshot of it", kept, l.handle(kept))
	}
}

// scheduling returns steps of an operator with a schedule, and of the owner of its claim.
func scheduling(r *rand.Rand) []string {
	set := fmt.Sprintf("schedule %d %s", 1+r.IntN(4), []string{"", "sure"}[r.IntN(2)])
	switch roll := r.IntN(20); {
	case roll < 4:
		return []string{set}
	case roll < 9:
		return []string{"wait 25m"}
	case roll < 12:
		return []string{"unclaim " + kept + " data", "wait 3s", "claim " + kept, "wait 12m"}
	case roll < 13:
		return []string{"unclaim " + kept + " data", "claim " + kept}
	case roll < 14:
		return []string{"claim " + kept}
	case roll < 15:
		return []string{fmt.Sprintf("trap storage %d %v", 1+r.IntN(3), r.IntN(2) == 0)}
	case roll < 17:
		return []string{fmt.Sprintf("trap record %d %v", 1+r.IntN(4), r.IntN(2) == 0), "wait 12m"}
	default:
		return []string{"wait 12m"}
	}
}
