package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// faults says how often calls go wrong.
type faults struct {
	percent uint64
	salt    uint64
}

// kinds are the ways in which a call goes wrong.
var kinds = []string{
	"failed", "lost", "uncertain", "refused", "final", "slow", "hang", "hang after", "late", "lie", "lie", "double", "stubborn", "plain",
}

// driver is a driver during one life of the daemon.
type driver struct {
	w *world
	l *life
	// info is what the driver can do; gone is closed when its process ends, and its calls then
	// fail.
	info manager.DriverInfo
	gone chan struct{}
}

// op is a call in progress.
type op struct {
	verb string
	v    state.Volume
	pod  state.PodUID
	name string // the volume's short name
	size int64
}

func (o op) String() string {
	if o.pod == "" {
		return o.verb + " " + string(o.v.ID)
	}
	return o.verb + " " + string(o.v.ID) + " " + string(o.pod)
}

func (d *driver) Attach(ctx context.Context, v state.Volume) (map[string]string, error) {
	return map[string]string{"device": "x"}, d.call(ctx, op{verb: "Attach", v: v})
}

func (d *driver) Detach(ctx context.Context, v state.Volume) error {
	return d.call(ctx, op{verb: "Detach", v: v})
}

func (d *driver) Stage(ctx context.Context, v state.Volume) error {
	return d.call(ctx, op{verb: "Stage", v: v})
}

func (d *driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	return time.Time{}, d.call(ctx, op{verb: "Publish", v: v, pod: pod})
}

func (d *driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	return d.call(ctx, op{verb: "Unpublish", v: v, pod: pod})
}

func (d *driver) Unstage(ctx context.Context, v state.Volume) error {
	return d.call(ctx, op{verb: "Unstage", v: v})
}

func (d *driver) Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error) {
	o := op{verb: "Expand", v: v, pod: pod, size: bytes}
	err := d.call(ctx, o)
	if errors.Is(err, errLie) {
		return bytes - 1, nil
	}
	return bytes, err
}

var errLie = errors.New("says OK and has less")

// attacher finds the driver of a volume, as a controller does.
type attacher struct{ l *life }

func (a attacher) of(v state.Volume) *driver { return a.l.driver(v.Spec.Driver) }

func (a attacher) Attach(ctx context.Context, v state.Volume) (map[string]string, error) {
	return a.of(v).Attach(ctx, v)
}

func (a attacher) Detach(ctx context.Context, v state.Volume) error { return a.of(v).Detach(ctx, v) }

// call judges whether the call may be made, and lets the script's faults decide its outcome.
func (d *driver) call(ctx context.Context, o op) error {
	w := d.w
	o.name = o.v.Spec.Name
	w.mu.Lock()
	if d.l.dead {
		w.mu.Unlock()
		return errDead
	}
	w.judge.begin(d.l, o)
	if volumes[o.name].renewed && o.verb == "Publish" {
		w.count.calls["Publish to be renewed"]++
	} else {
		w.count.calls[o.verb]++
	}
	d.l.nth[o.String()]++
	kind, roll := w.fate(d.l, o)
	if w.springs("call") {
		w.count.crashes["in a call"]++
		if w.trap.after {
			_ = w.effect(o, 0)
		}
		w.ends(d.l)
	}
	w.mu.Unlock()
	if kind != "" {
		w.mu.Lock()
		w.count.faults[kind]++
		w.mu.Unlock()
	}
	err := d.answer(ctx, o, kind, roll)
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.l.dead {
		return errDead
	}
	w.judge.end(d.l, o, err)
	return err
}

// fate decides the outcome of a call; mu is held.
func (w *world) fate(l *life, o op) (kind string, roll uint64) {
	roll = w.dice("fate", w.faults.salt, o, l.number, l.nth[o.String()])
	switch {
	case w.late[o.v.ID] > 0:
		return "busy", roll
	case w.frozen[o.name]:
		return "frozen", roll
	case roll%100 >= w.faults.percent:
		return "", roll
	}
	kind = kinds[roll/100%uint64(len(kinds))]
	builtin := drivers[o.v.Spec.Driver].Builtin
	switch {
	case kind == "lie" && (o.verb == "Attach" || o.verb == "Detach" || builtin || volumes[o.name].block && strings.HasSuffix(o.verb, "tage")):
		kind = "failed"
	case (kind == "late" || kind == "double") && builtin: // it dies with the daemon
		kind = "uncertain"
	}
	return kind, roll
}

// answer makes a call take its time, take effect or not, and end.
func (d *driver) answer(ctx context.Context, o op, kind string, roll uint64) error {
	nap := time.Duration(1+roll/7%1000_000) * time.Nanosecond
	fails := func(out state.Outcome, code string) error {
		return &state.CallError{Outcome: out, Call: o.verb, Code: code, Err: errors.New(kind + " by the script")}
	}
	switch kind {
	case "":
		return d.work(ctx, o, nap, 1)
	case "slow":
		return d.work(ctx, o, time.Duration(roll/7%60_000)*time.Millisecond+nap, 1)
	case "stubborn": // ignores its context
		return d.work(context.WithoutCancel(ctx), o, time.Duration(roll/7%600_000)*time.Millisecond+nap, 1)
	case "double":
		return d.work(ctx, o, nap, 2)
	case "busy":
		d.nap(ctx, nap)
		return fails(state.Uncertain, "Aborted")
	case "failed", "plain":
		d.nap(ctx, nap)
		if kind == "plain" {
			d.do(o)
			return errors.New("an error without a code")
		}
		return fails(state.Failed, "Internal")
	case "lost":
		if err := d.work(ctx, o, nap, 1); err != nil {
			return err
		}
		return fails(state.Uncertain, "Unavailable")
	case "uncertain":
		d.nap(ctx, nap)
		return fails(state.Uncertain, "Unavailable")
	case "refused":
		d.nap(ctx, nap)
		return fails(state.Refused, "InvalidArgument")
	case "final":
		d.nap(ctx, nap)
		return fails(state.Final, "Unimplemented")
	case "hang", "hang after":
		if kind == "hang after" {
			d.do(o)
		}
		d.nap(ctx, 24*time.Hour)
		return d.ended(ctx, o)
	case "frozen":
		return d.freeze(ctx, o)
	case "late":
		d.nap(ctx, nap)
		d.later(o, time.Duration(roll/7%300_000)*time.Millisecond)
		return fails(state.Uncertain, "DeadlineExceeded")
	case "lie":
		d.nap(ctx, nap)
		if o.verb == "Expand" {
			return errLie
		}
		d.forget(o)
		return nil
	default:
		panic("fault " + kind)
	}
}

// freeze blocks until the volume thaws: a built-in kind forever, a driver's call until its
// deadline.
func (d *driver) freeze(ctx context.Context, o op) error {
	if d.info.Builtin {
		ctx = context.WithoutCancel(ctx)
	}
	for {
		d.w.mu.Lock()
		frozen, dead := d.w.frozen[o.name], d.l.dead
		d.w.mu.Unlock()
		switch {
		case dead || ctx.Err() != nil:
			return d.ended(ctx, o)
		case !frozen:
			return d.work(ctx, o, time.Millisecond, 1)
		}
		if !d.nap(ctx, time.Minute) {
			return d.ended(ctx, o)
		}
	}
}

func (d *driver) ended(ctx context.Context, o op) error {
	if ctx.Err() == nil {
		return &state.CallError{Outcome: state.Uncertain, Call: o.verb, Code: "Unavailable", Err: errors.New("connection lost")}
	}
	return &state.CallError{Outcome: state.Uncertain, Call: o.verb, Code: "DeadlineExceeded", Err: ctx.Err()}
}

// nap waits, and reports whether it waited the full time: the end of the call, the driver or the
// daemon cuts it short.
func (d *driver) nap(ctx context.Context, for_ time.Duration) bool {
	t := time.NewTimer(for_)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-d.gone:
	case <-d.l.died:
	}
	return false
}

// work takes effect after a while. If it is cut off, the driver may finish it later.
func (d *driver) work(ctx context.Context, o op, takes time.Duration, layers int) error {
	if d.nap(ctx, takes) {
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		if d.l.dead {
			return errDead
		}
		return d.w.effect(o, layers)
	}
	if !d.info.Builtin {
		d.w.mu.Lock()
		nth := d.l.nth[o.String()]
		d.w.mu.Unlock()
		switch roll := d.w.dice("cut", o, d.l.number, nth); roll % 3 {
		case 0:
			d.do(o)
		case 1:
			d.later(o, time.Duration(roll/3%120_000)*time.Millisecond)
		}
	}
	return d.ended(ctx, o)
}

// forget removes the notes of paths that are not mounted. The daemon does that before the call,
// whatever the driver then does.
func (d *driver) forget(o op) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	at := o.v.Mounts[o.pod].Target
	if o.verb == "Unstage" {
		at = o.v.Spec.StagePath
	}
	if _, mounted := d.w.table[at]; removes(o.verb) && !mounted {
		d.w.forget(at)
	}
}

func (d *driver) do(o op) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	_ = d.w.effect(o, 1)
}

// later finishes a call that has already ended; meanwhile the driver answers ABORTED. A former
// version's Stage has no effect if its successor does not stage and the daemon took over the volume
// without the stage: nothing shows such a Stage to the daemon.
func (d *driver) later(o op, after time.Duration) {
	w := d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late[o.v.ID]++
	boot, ended, takeovers := w.boot, w.ended, w.takeovers
	time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.boot != boot {
			return // the driver died with the node
		}
		w.late[o.v.ID]--
		switch {
		case w.ended == ended:
		case o.verb == "Attach":
			return
		case !removes(o.verb) && o.verb != "Expand":
			ln := w.judge.of(o.v.ID).lane(o)
			ln.making, ln.foreign = true, true
		}
		if o.verb == "Stage" && w.unknown[o.v.Spec.StagePath] > takeovers {
			return
		}
		_ = w.effect(o, 1)
		if w.ended != ended { // it ends here, whether it made anything or not
			w.judge.traceless()
		}
	})
}

// effect changes the host as the call demands; mu is held.
func (w *world) effect(o op, layers int) error {
	layers = max(layers, 1)
	id, stage := o.v.ID, o.v.Spec.StagePath
	to := o.v.Mounts[o.pod].Target
	refuse := func(format string, args ...any) error {
		return &state.CallError{Outcome: state.Failed, Call: o.verb, Code: "FailedPrecondition", Err: fmt.Errorf(format, args...)}
	}
	switch o.verb {
	case "Attach":
		w.attached[id] = true
	case "Detach":
		delete(w.attached, id)
	case "Stage":
		if o.v.Needs.Attach && !w.attached[id] {
			return refuse("it is not attached")
		}
		if volumes[o.name].claimed && w.backend[o.name] == nil {
			return refuse("there is no such volume")
		}
		if _, ok := w.table[stage]; !ok {
			w.change(stage, made(stage, w.devOf(id), layers))
		}
	case "Publish":
		if _, ok := w.table[stage]; o.v.Needs.Stage && !ok {
			return refuse("it is not staged")
		}
		if volumes[o.name].claimed && w.backend[o.name] == nil {
			return refuse("there is no such volume")
		}
		if _, ok := w.table[to]; !ok {
			w.change(to, made(to, w.devOf(id), layers))
		}
	case "Unpublish":
		w.unmount(to)
	case "Unstage":
		w.unmount(stage)
	}
	return nil
}

// unmount unmounts as a driver does; mu is held.
func (w *world) unmount(path string) {
	m, ok := w.table[path]
	switch {
	case !ok:
		w.forget(path)
	case w.set.weak && m.layers > 1:
		m.layers--
		w.change(path, &m)
	default:
		w.change(path, nil)
		w.forget(path)
	}
}

// kernel is the mount table as one life of the daemon sees it.
type kernel struct {
	w *world
	l *life
}

var errLook = errors.New("input/output error")

func (k kernel) Look(ctx context.Context, path string) (state.Seen, error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.w.count.looks++
	if how := k.w.look; how != "" {
		k.w.count.faults["look "+how]++
		if how == "hang" {
			k.w.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-k.l.died:
			}
			k.w.mu.Lock()
		}
		return state.Seen{}, errLook
	}
	k.w.judge.looked(path)
	return k.w.seen(path), nil
}

func (kernel) Elsewhere(context.Context, string) ([]string, error) { return nil, nil }
func (kernel) Size(context.Context, string) (state.Sizes, error)   { return state.Sizes{}, nil }
func (kernel) Probe(context.Context, string) error                 { return nil }
func (kernel) HostPath(context.Context, string) error              { return nil }

// seen returns what is at a path; mu is held.
func (w *world) seen(path string) state.Seen {
	m, ok := w.table[path]
	switch {
	case !ok:
		return state.Seen{}
	case m.dir:
		return state.Seen{Exists: true, Dev: m.dev}
	default:
		return state.Seen{Exists: true, Mounted: true, Dev: m.dev, Layers: m.layers, BlockDevice: m.block}
	}
}
