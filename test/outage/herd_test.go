package outage

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// capacity is an API server's limit: the number of requests in flight, the time that each
// takes, and the length of the queue. The server tells further requests to return in a
// second (429), like Kubernetes' priority and fairness. A watch counts until the server
// has answered it.
type capacity struct {
	seats, queue int
	takes        time.Duration

	mu      sync.Mutex // guards the fields below
	away    bool
	busy    int
	waiting []chan struct{}
	// arrived is the number of requests in each second, refused the number of 429
	// answers.
	arrived map[int64]int
	refused int
}

// way is a node's transport to the server of that capacity.
type way struct {
	*capacity
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w way) RoundTrip(r *http.Request) (*http.Response, error) {
	turn, answer, err := w.enter()
	if answer != nil || err != nil {
		return answer, err
	}
	select {
	case <-turn:
	case <-r.Context().Done():
		w.leave(turn)
		return nil, r.Context().Err()
	}
	defer w.leave(nil)
	select {
	case <-time.After(w.takes):
		return w.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// enter takes a seat, or a place in the queue; it closes turn when the request has a
// seat.
func (w way) enter() (turn chan struct{}, answer *http.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return nil, nil, syscall.ECONNREFUSED
	}
	w.arrived[time.Now().Unix()]++
	turn = make(chan struct{})
	switch {
	case w.busy < w.seats:
		w.busy++
		close(turn)
	case len(w.waiting) < w.queue:
		w.waiting = append(w.waiting, turn)
	default:
		w.refused++
		return nil, &http.Response{
			StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}, Body: io.NopCloser(strings.NewReader("")),
		}, nil
	}
	return turn, nil, nil
}

// leave gives the seat to the request that has waited longest. A request that gave up
// while waiting leaves the queue.
func (w way) leave(gaveUp chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, turn := range w.waiting {
		if turn == gaveUp {
			w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
			return
		}
	}
	if len(w.waiting) == 0 {
		w.busy--
		return
	}
	close(w.waiting[0])
	w.waiting = w.waiting[1:]
}

// set makes the server unreachable, or reachable again.
func (c *capacity) set(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away, c.refused = away, 0
	c.arrived = map[int64]int{}
}

// load returns the number of requests, in all and in the busiest second, and the number
// of 429 answers.
func (c *capacity) load() (all, peak, refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.arrived {
		all += n
		peak = max(peak, n)
	}
	return all, peak, c.refused
}

// The most that 500 nodes may ask for when their API server is back, and the time within
// which each must know the changes (docs/scale.md).
const (
	herdPods    = 6
	herdTakes   = 20 * time.Millisecond
	herdWithin  = 90 * time.Second
	herdRequest = 80 // per node
)

func herdNodes() int {
	if os.Getenv("SCALE") == "full" {
		return 500
	}
	return 40
}

// The API server of many nodes is away, until each node asks as rarely as it ever does
// and the server has compacted all versions. It comes back with the capacity for two
// requests a second per node, or for half a request, so that it answers many with 429. No
// node unmounts anything meanwhile. Afterwards each node soon knows the changes, and asks
// the server for little more than it can do.
//
// Faults: A224.
func TestManyNodesComeBack(t *testing.T) {
	t.Run("with capacity", func(t *testing.T) { comeBack(t, herdTakes, herdWithin) })
	t.Run("with little capacity", func(t *testing.T) { comeBack(t, 4*herdTakes, 2*herdWithin) })
}

// comeBack runs the test with requests that take the given time.
func comeBack(t *testing.T, takes, within time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		nodes := herdNodes()
		seats := max(2, nodes/25)
		server := &capacity{seats: seats, queue: seats, takes: takes, arrived: map[int64]int{}}
		c := newCluster(t)
		c.between = func(next http.RoundTripper, _ *node) http.RoundTripper { return way{server, next} }
		c.server.Fail(nodeAuthorizer)
		var all []*node
		for i := range nodes {
			n := c.newNode(fmt.Sprint("n", i))
			c.config(n.name)
			for p := range herdPods {
				c.bind(n.name, fmt.Sprintf("%s-%d", n.name, p), n.name)
			}
			all = append(all, n)
			n.start()
		}
		each := func(ok func(*node) bool) func() bool {
			return func() bool {
				for _, n := range all {
					if !ok(n) {
						return false
					}
				}
				return true
			}
		}
		took := until(t, "all pods are ready", 10*time.Minute, each(func(n *node) bool { return n.ready() == herdPods }))
		t.Logf("%d nodes with %d pods start within %s", nodes, herdPods, took)
		advance(2 * time.Minute)
		server.set(true)
		c.server.EndWatches()
		advance(time.Minute)
		for _, n := range all {
			c.unbind(n.name, n.name+"-0")
			c.bind(n.name, n.name+"-new", n.name)
			if n.away() == nil {
				t.Errorf("%s does not show that the server is away", n.name)
			}
		}
		advance(9 * time.Minute)
		for _, n := range all {
			if n.count("Unpublish") > 0 || n.mounted() != 2*herdPods {
				t.Errorf("%s: %d mounts were taken away", n.name, n.count("Unpublish"))
			}
		}
		c.server.Compact()
		server.set(false)
		took = until(t, "every node knows what changed", within, each(func(n *node) bool {
			return n.count("Unpublish") == 1 && n.ready() == herdPods
		}))
		until(t, "no node shows that the server is away", 5*time.Minute, each(func(n *node) bool { return n.away() == nil }))
		total, peak, refused := server.load()
		can := int(time.Second/takes) * seats
		t.Logf("%d nodes come back to a server of %d requests a second: all know what changed within %s; %d requests, %d in the busiest second, %d told to come again",
			nodes, can, took, total, peak, refused)
		if total > herdRequest*nodes || peak > 5*can {
			t.Errorf("%d requests and %d in the busiest second, want at most %d and %d", total, peak, herdRequest*nodes, 5*can)
		}
	})
}
