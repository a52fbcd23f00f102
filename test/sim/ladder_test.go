package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ladder is what half of the worlds do about an unmount that keeps failing; the others do nothing.
func (w *world) ladder() plan.Ladder {
	if w.set.salt%2 == 0 {
		return nil
	}
	return plan.Ladder{{Step: state.UnmountForce, After: 2 * time.Second}, {Step: state.UnmountLazy, After: 5 * time.Second}}
}

// climbs lets the manager unmount by steps.
func (l *life) climbs(cfg *manager.Config) {
	cfg.Ladders = plan.Ladders{plan.AnyDriver: l.w.ladder()}
	cfg.Unmount = func(ctx context.Context, v state.Volume, pod state.PodUID, step state.UnmountStep) error {
		o := op{verb: "Unpublish", v: v, pod: pod, name: v.Spec.Name}
		path := v.Mounts[pod].Target
		if pod == "" {
			o.verb, path = "Unstage", v.Spec.StagePath
		}
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		if l.dead {
			<-ctx.Done()
			return ctx.Err()
		}
		l.w.judge.forced(l, o, step)
		if step == state.UnmountForce && l.w.dice("force", short(path), l.w.count.faults["step force"])%2 == 0 {
			return errors.New("a process has a file open")
		}
		l.w.change(path, nil)
		l.w.forget(path)
		return nil
	}
}

// forced judges whether an unmount by a step may be made: a normal one has failed for as long in
// this life as the policy demands, the journal says that the mount leaves, and no container has it;
// mu is held.
func (j *judge) forced(l *life, o op, step state.UnmountStep) {
	w, ln := j.w, j.of(o.v.ID).lane(o)
	w.count.faults["step "+step.String()]++
	allowed := false
	for _, r := range w.ladder() {
		allowed = allowed || r.Step == step && (ln.removed || ln.tried == l.number && time.Since(ln.triedAt) >= r.After)
	}
	if !allowed && !j.ordered(l, o, step) { // an order may be for another of its pods
		w.breach("ladder: %v by %s before its time", o, step)
	}
	if r := w.disk.records[o.v.ID]; o.verb == "Unstage" && r.Stage.Phase != state.Leaving || o.verb == "Unpublish" && r.Mounts[o.pod].Phase != state.Leaving {
		w.breach("ladder: %v by %s, and the journal does not say that it leaves", o, step)
	}
	if to := o.v.Mounts[o.pod].Target; o.verb == "Unpublish" && j.running[string(o.pod)][to] {
		w.breach("rule 5: %v by %s, and the pod is running", o, step)
	}
}

// order is an operator's order to unmount a volume whose unmount fails.
type order struct {
	id   state.VolumeID
	step state.UnmountStep
	life int
	done bool // it was carried out
}

// order gives an order and judges the answer: a refused order is not carried out; mu is held.
func (l *life) order(id state.VolumeID, step state.UnmountStep) {
	j := l.w.judge
	o := &order{id: id, step: step, life: l.number}
	j.orders = append(j.orders, o)
	go func() {
		err := l.m.UnmountBy(context.Background(), id, step)
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		switch {
		case err == nil:
			l.w.count.faults["order"]++
		case !errors.Is(err, manager.ErrNotStuck):
		case o.done:
			l.w.breach("ladder: an order for %s was refused and is carried out", id)
		default:
			j.orders = slices.DeleteFunc(j.orders, func(other *order) bool { return other == o })
		}
	}()
}

// ordered reports whether an operator ordered the unmount in this life. Each order is for one
// unmount, which must have been tried before; mu is held.
func (j *judge) ordered(l *life, o op, step state.UnmountStep) bool {
	if ln := j.of(o.v.ID).lane(o); !ln.removed && ln.tried == 0 {
		return false
	}
	for _, given := range j.orders {
		if !given.done && given.life == l.number && given.id == o.v.ID && given.step == step {
			given.done = true
			return true
		}
	}
	return false
}

// showsAll reports whether the board shows everything that the manager heard.
func (l *life) showsAll() bool {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return l.m.Settle(now) == nil
}

// tries notes the first attempt of a removal in a life; mu is held.
func (ln *lane) tries(l *life) {
	if ln.tried != l.number {
		ln.tried, ln.triedAt = l.number, time.Now()
	}
}
