package report

import (
	"context"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// leastPeriod is the shortest period that the API allows in a CSIDriver.
	leastPeriod = 10 * time.Second
	// fullPause is how long a driver is not asked again after refused attachments. Many
	// are refused at once, and one answer serves them all.
	fullPause = time.Second
)

// Full says that a controller could not attach a volume because the driver serves its
// maximum on this node. So the limit in CSINode, by which the scheduler chose this node,
// is too high. If the driver has a Config.Period, it is asked for its limit at once.
func (r *Reporter) Full(name state.DriverName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full[name] = true
	r.notify()
}

// limit says when a driver is asked for its limit.
type limit struct {
	period time.Duration
	asked  time.Time // last time
	next   time.Time // next time
	busy   bool      // a call is in flight
}

// runLimits asks drivers for their limits until ctx ends.
func (r *Reporter) runLimits(ctx context.Context) {
	limits, answered := map[state.DriverName]*limit{}, make(chan state.DriverName)
	var asking sync.WaitGroup
	defer asking.Wait()
	for ctx.Err() == nil {
		v, changed := r.view(false)
		r.plan(limits, v, time.Now())
		wait := time.Hour
		for name, l := range limits {
			if until := time.Until(l.next); until > 0 || l.busy {
				if !l.busy {
					wait = min(wait, until)
				}
				continue
			}
			l.busy, l.asked = true, time.Now()
			asking.Go(func() {
				r.ask(ctx, name)
				select {
				case answered <- name:
				case <-ctx.Done():
				}
			})
		}
		timer := time.NewTimer(wait)
		select {
		case name := <-answered:
			if l := limits[name]; l != nil {
				l.busy, l.next = false, time.Now().Add(l.period)
			}
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// plan sets when each driver is asked: one period after it registered or its period
// changed, and now if Full was called.
func (r *Reporter) plan(limits map[state.DriverName]*limit, v view, now time.Time) {
	for name, l := range limits {
		if _, up := v.drivers[name]; !up && !l.busy {
			delete(limits, name)
		}
	}
	for name := range v.drivers {
		period := r.config.Period(name)
		if period > 0 {
			period = max(period, leastPeriod)
		}
		l := limits[name]
		switch {
		case period <= 0 && (l == nil || !l.busy):
			delete(limits, name)
			r.wasFull(name)
			continue
		case l == nil:
			l = &limit{}
			limits[name] = l
		}
		if l.period != period {
			l.period, l.next = period, now.Add(period)
		}
		if !l.busy && r.wasFull(name) {
			l.next = later(now, l.asked.Add(fullPause))
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wasFull reports whether Full was called for the driver, and forgets it.
func (r *Reporter) wasFull(name state.DriverName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.full[name]
	delete(r.full, name)
	return was
}

// ask asks a driver for its limit. If the call fails, the driver keeps its old limit and
// the error becomes a finding.
func (r *Reporter) ask(ctx context.Context, name state.DriverName) {
	count, err := r.config.Limit(ctx, name)
	if ctx.Err() != nil {
		return
	}
	r.noteFinding(outage.Finding{What: "limits of driver " + string(name)}, err, 0) // not a request to the API server
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, up := r.drivers[name]; up && d.MaxVolumes != count {
		r.logger.Info("driver's limit of volumes has changed", "driver", name, "was", d.MaxVolumes, "is", count)
		d.MaxVolumes = count
		r.drivers[name] = d
		r.notify()
	}
}
