package stats

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// askEvery is how long an answer is good, and askJitter how much longer a subject may wait for its
	// next question: the kubelet's values.
	askEvery  = time.Minute
	askJitter = time.Minute
	// readLease is how long figures are asked for after a client has read them.
	readLease = 5 * time.Minute
	// readPatience is how long the first reader waits for answers.
	readPatience = time.Second
	// lookEvery is the least time between two looks for subjects that are due, and the period of looks
	// while any subject will be due again.
	lookEvery = 10 * time.Second
	// A question with its own deadline is not asked again for restFactor times as long as it took, at
	// most maxRest, because the disk is there for the pods.
	restFactor = 20
	maxRest    = time.Hour
	// askDeadline bounds a question. An answer that takes longer helps no reader.
	askDeadline = 15 * time.Second
	// perDriver bounds the open questions to one driver.
	perDriver = 8
)

// Config is whom a Collector asks, and how. Subjects, Question and Changed are required.
type Config struct {
	// Subjects yields the subjects that exist now. It is called often, and must not call the Collector.
	Subjects iter.Seq[Subject]
	// Question returns how to ask a subject now; false if it cannot be asked now, for example because a
	// call on it is in flight: CSI wants one call for a volume at a time.
	Question func(Subject) (Question, bool)
	// Changed returns a channel that is closed when Subjects may yield others.
	Changed func() <-chan struct{}
	// OnHealth, if not nil, is called when the health of a subject has changed; it must not block.
	OnHealth func(Status)
	// Logger is where the Collector logs; nil means that it does not.
	Logger *slog.Logger
}

// Collector asks, and keeps the answers. Any goroutine may call its methods.
type Collector struct {
	cfg     Config
	took    *prometheus.HistogramVec
	read    chan struct{} // signals that a client reads again
	mu      sync.Mutex    // guards the fields below
	entries map[string]*entry
	queues  map[state.DriverName][]*entry // subjects to ask, in this order
	open    map[state.DriverName]int      // questions without an answer
	// A client has read since since; figures are asked for until until.
	since, until time.Time
	// answered is closed when all subjects that were due at since have answered, once looked says that
	// they are queued. It is nil after that.
	answered chan struct{}
	looked   bool
}

type entry struct {
	Status
	subject Subject
	next    time.Time
	good    time.Time // until when the last answer is recent enough
	logged  bool      // whether the log has that the question failed
	queued  bool
	gone    bool // the subject no longer exists, but its question is open
	dead    bool // its storage did not answer the last time
}

// New returns a Collector that asks no driver until Run.
func New(cfg Config) *Collector {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Collector{
		cfg: cfg, read: make(chan struct{}, 1),
		entries: map[string]*entry{}, queues: map[state.DriverName][]*entry{}, open: map[state.DriverName]int{},
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_volume_metric_collection_duration_seconds",
			Help: "How long it took to measure a volume, by who answered.",
		}, []string{"metric_source"}),
	}
}

// Run asks until ctx ends. It does not wait for a question that ignores ctx. While no client reads and no
// volume's health is watched, it sleeps.
func (c *Collector) Run(ctx context.Context) error {
	pause := time.NewTimer(lookEvery)
	defer pause.Stop()
	for {
		changed := c.cfg.Changed()
		again := c.look(ctx, time.Now())
		pause.Reset(lookEvery)
		select {
		case <-c.read:
			continue
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
		if again {
			continue
		}
		select {
		case <-c.read:
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// look queues the subjects that are due, starts their questions while there is room, and forgets subjects
// that no longer exist. It reports whether any subject will be due again even if nothing changes.
func (c *Collector) look(ctx context.Context, now time.Time) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.gone = true
	}
	for s := range c.cfg.Subjects {
		e, known := c.entries[s.Key]
		wanted := s.Watched || now.Before(c.until)
		again = again || wanted
		if !known && !wanted {
			continue
		}
		if !known {
			e = &entry{}
			c.entries[s.Key] = e
		}
		e.gone, e.subject, e.Key, e.Driver, e.Claim = false, s, s.Key, s.Driver, s.Claim
		if !e.queued && e.Asking.IsZero() && wanted && (s.Mortal || !e.next.After(now)) {
			e.queued = true
			c.queues[s.Driver] = append(c.queues[s.Driver], e)
		}
	}
	maps.DeleteFunc(c.entries, func(_ string, e *entry) bool { return e.gone && e.Asking.IsZero() })
	for d := range c.queues {
		for c.open[d] < perDriver {
			e := c.pop(d, now)
			if e == nil {
				break
			}
			c.open[d]++
			go c.work(ctx, d, e)
		}
	}
	c.looked = true
	c.settle()
	return again
}

// pop takes the next subject to ask from the queue of d, or returns nil. The caller holds c.mu.
func (c *Collector) pop(d state.DriverName, now time.Time) *entry {
	for q := c.queues[d]; len(q) > 0; q = c.queues[d] {
		e := q[0]
		c.queues[d], e.queued = q[1:], false
		if !e.gone && (e.subject.Watched || now.Before(c.until)) {
			e.Asking = now
			return e
		}
	}
	delete(c.queues, d)
	return nil
}

// work asks e, and then the next subjects in the queue of d.
func (c *Collector) work(ctx context.Context, d state.DriverName, e *entry) {
	for e != nil {
		c.question(ctx, e)
		c.mu.Lock()
		e.Asking = time.Time{}
		if e = nil; ctx.Err() == nil {
			e = c.pop(d, time.Now())
		}
		if e == nil {
			if c.open[d]--; c.open[d] == 0 {
				delete(c.open, d)
			}
			c.settle()
		}
		c.mu.Unlock()
	}
}

// settle ends the wait for answers if none is outstanding. The caller holds c.mu.
func (c *Collector) settle() {
	if c.answered != nil && c.looked && len(c.open) == 0 && len(c.queues) == 0 {
		close(c.answered)
		c.answered = nil
	}
}

// question asks the subject of e if it is due. If it is not, question asks only whether the storage has
// died or is back since, and asks everything if so.
func (c *Collector) question(ctx context.Context, e *entry) {
	c.mu.Lock()
	s, due, dead := e.subject, !e.next.After(e.Asking), e.dead
	c.mu.Unlock()
	q, ok := c.cfg.Question(s)
	if !ok {
		return
	}
	if !due {
		if q.Alive == nil {
			return
		}
		one, cancel := context.WithTimeout(ctx, askDeadline)
		err := q.Alive(one)
		cancel()
		if dead == (err != nil) {
			return
		}
		c.mu.Lock()
		e.dead = err != nil
		c.mu.Unlock()
	}
	c.ask(ctx, e, q)
}

func (c *Collector) ask(ctx context.Context, e *entry, q Question) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(q.Deadline, askDeadline))
	defer cancel()
	start := time.Now()
	r, err := q.Ask(ctx)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e.next = now.Add(max(askEvery+jitter(e.Key), pauseAfter(q, now.Sub(start))))
	switch {
	case errors.Is(err, ErrNone):
		e.Status = Status{Key: e.Key, Driver: e.Driver, Claim: e.Claim, Asking: e.Asking}
	case err != nil:
		was := e.Status
		if e.Status = e.merged(r, now); r.Measured {
			e.good = e.next
		}
		c.reportHealth(ctx, was, e.Status)
		if e.Error = err.Error(); !e.logged && ctx.Err() == nil {
			e.logged = true
			c.cfg.Logger.Warn("usage or health of a volume cannot be read",
				"volume", e.Key, "driver", string(e.Driver), "err", err)
		}
	default:
		c.took.WithLabelValues(q.Source).Observe(now.Sub(start).Seconds())
		e.logged, e.good = false, e.next
		was := e.Status
		e.Status = e.with(r, now)
		c.reportHealth(ctx, was, e.Status)
	}
}

// pauseAfter returns how long not to ask a subject again after an answer that took as long as took.
func pauseAfter(q Question, took time.Duration) time.Duration {
	if q.Deadline == 0 {
		return 0
	}
	return min(maxRest, restFactor*took)
}

// reportHealth reports each change of health once. A volume that is healthy from the start is no change.
func (c *Collector) reportHealth(ctx context.Context, was, is Status) {
	if is.HealthSince.Equal(was.HealthSince) || was.Health == "" && is.Health == Healthy {
		return
	}
	texts := make([]string, len(is.Conditions))
	for i, d := range is.Conditions {
		texts[i] = d.String()
	}
	level := slog.LevelInfo
	if is.Health == Abnormal {
		level = slog.LevelWarn
	}
	c.cfg.Logger.Log(ctx, level, "health changed", "volume", is.Key, "driver", string(is.Driver), "health",
		string(is.Health), "conditions", strings.Join(texts, "; "))
	if c.cfg.OnHealth != nil {
		c.cfg.OnHealth(is)
	}
}

// jitter spreads the questions over time; it depends on the subject alone.
func jitter(key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // a hash's Write never fails
	return askJitter / 1000 * time.Duration(h.Sum32()%1000)
}

// Stats lists the subjects that have an answer or are being asked, by key. While it is called now and
// then, figures are asked for. The first call, or the first after a pause, waits for the answers, for a
// second at most.
func (c *Collector) Stats(ctx context.Context) []Status {
	c.want()
	c.mu.Lock()
	answered, patience := c.answered, time.Until(c.since.Add(readPatience))
	c.mu.Unlock()
	if answered != nil && patience > 0 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
	return c.LastStats()
}

// want has figures asked for during the next readLease, and returns since when they are asked for.
func (c *Collector) want() (since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	lapsed := !now.Before(c.until)
	c.until = now.Add(readLease)
	if !lapsed {
		return c.since
	}
	c.since, c.looked = now, false
	if c.answered == nil {
		c.answered = make(chan struct{})
	}
	select {
	case c.read <- struct{}{}:
	default: // Run has not taken the last signal yet
	}
	return now
}

// LastStats is Stats without waiting for drivers or asking them.
func (c *Collector) LastStats() []Status {
	all := []Status{}
	for _, e := range c.copies() {
		all = append(all, e.Status)
	}
	return all
}

// copies returns copies of the entries that have something to show, by key.
func (c *Collector) copies() []entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []entry
	for _, key := range slices.Sorted(maps.Keys(c.entries)) {
		if e := *c.entries[key]; !e.gone && (!e.At.IsZero() || e.Error != "" || !e.Asking.IsZero()) {
			e.Conditions = slices.Clone(e.Conditions)
			all = append(all, e)
		}
	}
	return all
}
