package stats

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
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
	// askEvery is how long an answer is good, and askJitter how much longer a
	// subject may have to wait for the next question: the kubelet's.
	askEvery  = time.Minute
	askJitter = time.Minute
	// lookEvery is how often it is looked which subjects there are and are due.
	lookEvery = 10 * time.Second
	// restFactor times as long as a question with a deadline of its own took, it
	// is not asked again, but for maxRest: the disk is there for the pods.
	restFactor = 20
	maxRest    = time.Hour
	// askDeadline bounds a question. An answer that takes longer helps nobody.
	askDeadline = 15 * time.Second
	// perDriver bounds the questions that are open at one driver.
	perDriver = 8
)

// Config says whom a Collector asks. Subjects is required.
type Config struct {
	// Subjects lists what there is to ask for now. A volume of which a call is
	// in flight is left out: CSI wants one call for a volume at a time.
	Subjects func() []Subject
	// OnHealth is told when the health of a subject changed; it must not block.
	// It may be nil.
	OnHealth func(Status)
	// Logger may be nil for no log.
	Logger *slog.Logger
}

// Collector asks, and keeps the answers. Its methods may be called by any goroutine.
type Collector struct {
	cfg     Config
	took    *prometheus.HistogramVec
	mu      sync.Mutex // guards what follows
	entries map[string]*entry
	open    map[state.DriverName]int // questions without an answer
}

type entry struct {
	Status
	next time.Time
	told bool // that the question failed, in the log
	gone bool // the subject is there no more, but its question is open
	dead bool // its storage did not answer when it was asked last
}

// New returns a Collector that asks nobody until Run.
func New(cfg Config) *Collector {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Collector{
		cfg: cfg, entries: map[string]*entry{}, open: map[state.DriverName]int{},
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_volume_metric_collection_duration_seconds",
			Help: "How long it took to learn how full a volume is, by who answered.",
		}, []string{"metric_source"}),
	}
}

// Run asks until ctx ends. A question that does not heed its end is left behind.
func (c *Collector) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		c.look(ctx, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look begins the questions that are due and forgets subjects that have gone.
func (c *Collector) look(ctx context.Context, now time.Time) {
	subjects := c.cfg.Subjects()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.gone = true
	}
	for _, s := range subjects {
		e := c.entries[s.Key]
		if e == nil {
			e = &entry{}
			c.entries[s.Key] = e
		}
		e.gone, e.Key, e.Driver, e.Claim = false, s.Key, s.Driver, s.Claim
		due := !e.next.After(now)
		if s.Ask == nil || !e.Asking.IsZero() || !due && s.Alive == nil || c.open[s.Driver] >= perDriver {
			continue
		}
		e.Asking = now
		c.open[s.Driver]++
		if due {
			go c.ask(ctx, s)
		} else {
			go c.feel(ctx, s)
		}
	}
	maps.DeleteFunc(c.entries, func(_ string, e *entry) bool { return e.gone && e.Asking.IsZero() })
}

func (c *Collector) ask(ctx context.Context, s Subject) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.Deadline, askDeadline))
	defer cancel()
	start := time.Now()
	r, err := s.Ask(ctx)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[s.Driver]--
	e := c.entries[s.Key]
	e.Asking, e.next = time.Time{}, now.Add(max(askEvery+jitter(s.Key), rest(s, now.Sub(start))))
	switch {
	case errors.Is(err, ErrNone):
		e.Status = Status{Key: s.Key, Driver: s.Driver, Claim: s.Claim}
	case err != nil:
		if e.Error = err.Error(); !e.told && ctx.Err() == nil {
			e.told = true
			c.cfg.Logger.Warn("nobody says how full a volume is or how it fares", "volume", s.Key, "driver", string(s.Driver), "err", err)
		}
	default:
		c.took.WithLabelValues(s.Source).Observe(now.Sub(start).Seconds())
		e.told = false
		was := e.Status
		e.Status = e.with(r, now)
		c.tell(ctx, was, e.Status)
	}
}

// feel asks a subject whose storage died, or is back, and no other.
func (c *Collector) feel(ctx context.Context, s Subject) {
	one, cancel := context.WithTimeout(ctx, askDeadline)
	err := s.Alive(one)
	cancel()
	c.mu.Lock()
	e := c.entries[s.Key]
	changed := e.dead != (err != nil)
	e.dead = err != nil
	if !changed {
		e.Asking = time.Time{}
		c.open[s.Driver]--
	}
	c.mu.Unlock()
	if changed {
		c.ask(ctx, s)
	}
}

// rest is how long a subject that took that long is left in peace.
func rest(s Subject, took time.Duration) time.Duration {
	if s.Deadline == 0 {
		return 0
	}
	return min(maxRest, restFactor*took)
}

// tell says once that health changed. What is healthy from the start is no news.
func (c *Collector) tell(ctx context.Context, was, is Status) {
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
	c.cfg.Logger.Log(ctx, level, "health changed", "volume", is.Key, "driver", string(is.Driver), "health", string(is.Health), "conditions", strings.Join(texts, "; "))
	if c.cfg.OnHealth != nil {
		c.cfg.OnHealth(is)
	}
}

// jitter spreads the questions; it depends on the subject alone.
func jitter(key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // a hash's Write never fails
	return askJitter / 1000 * time.Duration(h.Sum32()%1000)
}

// Stats lists what is known of what was answered for, or is being asked, by key.
func (c *Collector) Stats() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []Status{}
	for _, key := range slices.Sorted(maps.Keys(c.entries)) {
		if e := c.entries[key]; !e.gone && (!e.At.IsZero() || e.Error != "" || !e.Asking.IsZero()) {
			s := e.Status
			s.Conditions = slices.Clone(s.Conditions)
			all = append(all, s)
		}
	}
	return all
}
