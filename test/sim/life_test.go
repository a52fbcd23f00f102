package sim

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// life is one run of the daemon. The world's mu guards its fields.
type life struct {
	w     *world
	m     *manager.Manager
	c     *controller.Controller
	front *front // nil without authors
	// schedules is nil without a schedule.
	schedules *scheduler
	number    int
	cancel    context.CancelFunc
	done      chan error
	dead      bool
	died      chan struct{} // closed when dead
	// controlled is closed when the controller, and with it the freezer, has ended.
	controlled chan struct{}
	nth        map[string]int
	// asking, reading and cutting count the calls to the storage in flight: by the object that they
	// change, by the object that they copy, and by the volume that they snapshot.
	asking, reading, cutting map[string]int

	told    map[string]state.PodWant // what the manager heard about pods
	spoken  map[string]bool          // by source
	drivers map[state.DriverName]*driver
	// leaving are the removals that, by the journal, began in an earlier life.
	leaving map[string]bool
	// left are the pods whose end the manager may not have handled yet: it may be busy with a
	// write.
	left map[string]bool
	// ended are the pods whose containers all have ended, as the container runtime said; nil if no
	// runtime is asked.
	ended map[state.PodUID]bool
	// shown: the board has shown the journal's state; before that, its content does not count.
	shown bool
	// drain is in effect since drainedAt. empties: no container runs, as an operator said, and the
	// manager may act on it. orders counts what the operator said.
	drain     manager.Drain
	drainedAt time.Time
	empties   bool
	orders    int
	// claimed: the controller heard every listed claim.
	claimed bool
	// disinherited are the claims whose source an accepted order took, until the next look.
	disinherited []heir
}

// start begins a life, which knows nothing but the journal.
func (w *world) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
	if err := w.disk.jump(w.jumps); err != nil {
		return err
	}
	w.jumps = 0
	w.disk.spare = w.disk.journal.Copy()
	l := &life{
		w: w, number: w.lives, done: make(chan error, 1), died: make(chan struct{}), controlled: make(chan struct{}), nth: map[string]int{},
		asking: map[string]int{}, reading: map[string]int{}, cutting: map[string]int{},
		told: map[string]state.PodWant{}, spoken: map[string]bool{}, drivers: map[state.DriverName]*driver{},
		leaving: map[string]bool{}, left: map[string]bool{},
	}
	for path := range w.judge.vanished { // as if no earlier life had seen it
		w.judge.vanished[path] = time.Time{}
	}
	for _, v := range w.disk.records {
		l.leaving[op{verb: "Detach", v: v}.String()] = v.Attach.Phase == state.Leaving
		l.leaving[op{verb: "Unstage", v: v}.String()] = v.Stage.Phase == state.Leaving
		for uid, m := range v.Mounts {
			l.leaving[op{verb: "Unpublish", v: v, pod: uid}.String()] = m.Phase == state.Leaving
		}
	}
	cfg := manager.Config{
		Store: store{w, l}, Kernel: kernel{w, l}, Attacher: attacher{l}, Sources: sources,
		BootID: fmt.Sprint("boot-", w.boot), InUseHandshake: w.set.handshake, Place: layout.Place, Logger: slog.New(slog.DiscardHandler),
	}
	l.climbs(&cfg)
	if w.dice("runtime")%3 == 0 {
		cfg.Containers, l.ended = criRuntime{l}, map[state.PodUID]bool{}
	}
	if w.set.limited {
		cfg.Limits = plan.Limits{Node: 3, Driver: 2, Reserved: 1}
	}
	if os.Getenv("LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	own := controller.Config{Logger: cfg.Logger, KV: claims{w, l}, Secrets: noSecrets{}, Usage: usage{w, l}, Freezer: newFreezer(w, l)}
	own.Lost = func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.disk.lost
	}
	if w.set.limited {
		own.MaxCalls = 2
	}
	l.c = controller.New(own)
	cfg.OnGone, cfg.OnUnrecorded = l.c.UsageChanged, l.c.AllUsageChanged
	m, err := manager.New(cfg)
	if err != nil {
		return err
	}
	l.m = m
	w.life = l
	if w.drain != 0 {
		l.drainTo(w.drain)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go func() { l.done <- m.Run(ctx) }()
	go l.control(ctx)
	if w.set.authors {
		l.front = newFront(w, l, cfg.Logger)
		go func() { _ = l.front.binder.Run(ctx) }()
	}
	if w.set.schedules {
		l.schedules = newScheduler(w, l, cfg.Logger)
		go func() { _ = l.schedules.k.Run(ctx) }()
	}
	for _, name := range sortedKeys(drivers) {
		l.after("up", string(name), func() { l.up(name) })
	}
	l.after("mounts", "table", w.tellMounts)
	for _, s := range sources {
		roll := w.dice("source", s, l.number)
		if w.silent[s] && !w.calm {
			continue // until the script lets it speak
		}
		late := roll%5 == 0 && !w.calm
		l.after("speak", s, func() { l.speak(s, late) })
	}
	return nil
}

// after calls do, at once or later in this life; mu is held.
func (l *life) after(what, who string, do func()) {
	delays := []time.Duration{0, time.Millisecond, 30 * time.Millisecond, 2 * time.Second, time.Minute}
	d := delays[l.w.dice(what, who, l.number)%uint64(len(delays))]
	if l.w.calm {
		d = time.Nanosecond
	}
	time.AfterFunc(d, func() {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		if !l.dead {
			do()
		}
	})
}

// up registers a driver; mu is held.
func (l *life) up(name state.DriverName) {
	if l.w.down[name] {
		return
	}
	l.drop(name)
	d := &driver{w: l.w, l: l, info: l.w.info(name), gone: make(chan struct{})}
	l.drivers[name] = d
	l.m.DriverUp(d.info, d)
	if name == "d" {
		l.c.DriverUp(controller.Driver{Name: name, Conn: backend{d}, NodeID: "n"})
	}
}

// info returns what the newest version of a driver can do; mu is held.
func (w *world) info(name state.DriverName) manager.DriverInfo {
	if n := w.version[name]; n > 0 {
		return otherwise[name][n-1]
	}
	return drivers[name]
}

// drop ends the calls of a driver's earlier process.
func (l *life) drop(name state.DriverName) {
	if d := l.drivers[name]; d != nil && !d.info.Builtin {
		l.c.DriverDown(name)
		close(d.gone)
		delete(l.drivers, name)
	}
}

func (l *life) driver(name state.DriverName) *driver {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if d := l.drivers[name]; d != nil {
		return d
	}
	gone := make(chan struct{})
	close(gone)
	return &driver{w: l.w, l: l, info: drivers[name], gone: gone}
}

// speak makes a source report all its pods; with late, their objects appear half a minute later. mu
// is held.
func (l *life) speak(source string, late bool) {
	if l.spoken[source] {
		return
	}
	for _, uid := range everyPod {
		if _, ok := l.w.wishes[uid]; ok && sourceOf(uid) == source {
			l.set(uid, late)
		}
	}
	l.spoken[source] = true
	if l.front != nil {
		l.front.speak(source)
	}
	l.m.SourceSynced(source)
	if late {
		time.AfterFunc(30*time.Second, func() {
			l.w.mu.Lock()
			defer l.w.mu.Unlock()
			for _, uid := range everyPod {
				if _, ok := l.told[uid]; ok && !l.dead && sourceOf(uid) == source {
					l.tell(uid)
				}
			}
		})
	}
}

// tell passes on a source's view of a pod; mu is held.
func (l *life) tell(uid string) {
	if _, ok := l.w.wishes[uid]; ok {
		l.set(uid, false)
		return
	}
	delete(l.told, uid)
	l.w.judge.left(l, uid)
	l.m.RemovePod(state.PodUID(uid))
}

func (l *life) set(uid string, late bool) {
	p := l.w.wantOf(uid, late)
	for _, vw := range p.Volumes {
		if ln := l.w.judge.of(vw.ID).publish[state.PodUID(uid)]; ln != nil && vw.Revision != "" {
			ln.there = false // it is made again with the new content
		}
	}
	if !p.Stopped {
		delete(l.ended, p.Pod.UID)
	}
	l.told[uid] = p
	l.w.judge.left(l, uid)
	l.m.SetPod(p)
}

// die ends a life like SIGKILL; mu is held.
func (l *life) die() {
	if !l.dead {
		l.dead = true
		close(l.died)
		l.cancel()
	}
}

func keys[K comparable, V any](m map[K]V) iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func values[K comparable, V any](m map[K]V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}
