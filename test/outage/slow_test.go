package outage

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// bad is a transport to the server with late answers, lost answers, or failures.
type bad struct {
	next http.RoundTripper
	// before is the time that a request takes to the server, after the time that the
	// answer takes back.
	before, after func(*http.Request) time.Duration
	// lost reports whether the server carries out the request and the answer gets lost.
	lost func(*http.Request) bool
	// fails returns a failure instead of an answer, or nil.
	fails func(*http.Request) *http.Response
}

func wait(r *http.Request, takes func(*http.Request) time.Duration) error {
	if takes == nil {
		return nil
	}
	select {
	case <-time.After(takes(r)):
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// RoundTrip implements http.RoundTripper. A sent request arrives, even if the client no
// longer waits for the answer.
func (b bad) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.fails != nil {
		if resp := b.fails(r); resp != nil {
			return resp, nil
		}
	}
	if err := wait(r, b.before); err != nil {
		return nil, err
	}
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := wait(r, b.after); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	if b.lost != nil && b.lost(r) {
		_ = resp.Body.Close() // as the connection does
		return nil, io.ErrUnexpectedEOF
	}
	return resp, nil
}

func isStatus(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status")
}

// between5And29 returns random times for answers, so that they come out of order.
func between5And29(dice *rand.Rand) func(*http.Request) time.Duration {
	return func(*http.Request) time.Duration {
		return 5*time.Second + time.Duration(dice.Int64N(int64(24*time.Second)))
	}
}

// For every kind of request, answers take 5 to 29 seconds, come out of order, get lost
// after the server has carried out the request, or are 500 and 503 with Retry-After. Pods
// come, are replaced and go. The volumes of pods that stay are not touched, nothing is
// mounted twice, the driver makes nothing of a volume that is not in use and attached, no
// mounted volume is detached, and in the end nothing is left.
//
// Faults: A225.
func TestBadAnswers(t *testing.T) {
	half := func(dice *rand.Rand) bool { return dice.IntN(2) == 0 }
	for name, make := range map[string]func(*rand.Rand) bad{
		"late on the way there": func(d *rand.Rand) bad { return bad{before: between5And29(d)} },
		"late on the way back":  func(d *rand.Rand) bad { return bad{after: between5And29(d)} },
		"lists of volumes in use are written, and half of the answers are lost": func(d *rand.Rand) bad {
			return bad{lost: func(r *http.Request) bool { return isStatus(r) && half(d) }}
		},
		"half of all answers are lost": func(d *rand.Rand) bad {
			return bad{lost: func(r *http.Request) bool { return half(d) }}
		},
		"late, and half are lost": func(d *rand.Rand) bad {
			return bad{after: between5And29(d), lost: func(r *http.Request) bool { return isStatus(r) && half(d) }}
		},
		"half are 503 with Retry-After": func(d *rand.Rand) bad { return bad{fails: fails(d, http.StatusServiceUnavailable, "3")} },
		"half are 500 with Retry-After": func(d *rand.Rand) bad { return bad{fails: fails(d, http.StatusInternalServerError, "3")} },
		"half are 500":                  func(d *rand.Rand) bad { return bad{fails: fails(d, http.StatusInternalServerError, "")} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				synctest.Test(t, func(t *testing.T) { lifeWithBadAnswers(t, make, seed) })
			}
		})
	}
}

// fails makes half of the answers failures.
func fails(dice *rand.Rand, code int, after string) func(*http.Request) *http.Response {
	return func(*http.Request) *http.Response {
		if dice.IntN(2) == 0 {
			return nil
		}
		body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":%d,"message":"x"}`, code)
		resp := &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
		if after != "" {
			resp.Header.Set("Retry-After", after)
		}
		return resp
	}
}

func lifeWithBadAnswers(t *testing.T, make func(*rand.Rand) bad, seed uint64) {
	c := newCluster(t)
	c.server.Fail(nodeAuthorizer)
	c.between = func(next http.RoundTripper, _ *node) http.RoundTripper {
		b := make(rand.New(&locked{src: rand.NewPCG(seed, 1)}))
		b.next = next
		return b
	}
	n := c.newNode("n1")
	c.config("shared")
	const pods = 6
	for i := range pods {
		c.bind("n1", fmt.Sprint("p", i), "shared")
	}
	n.start()
	until(t, "all pods are ready", 20*time.Minute, func() bool { return n.ready() == pods })
	for i := range pods / 2 {
		c.unbind("n1", fmt.Sprint("p", i))
		c.bind("n1", fmt.Sprint("q", i), "shared")
	}
	until(t, "half are replaced", 20*time.Minute, func() bool { return n.count("Unstage") == pods/2 && n.ready() == pods })
	if got := n.count("Stage"); got != pods+pods/2 || n.count("Unpublish") != pods/2 {
		t.Errorf("%d stages, %d mounts taken away, want %d and %d", got, n.count("Unpublish"), pods+pods/2, pods/2)
	}
	for i := range pods {
		if i < pods/2 {
			c.unbind("n1", fmt.Sprint("q", i))
		} else {
			c.unbind("n1", fmt.Sprint("p", i))
		}
	}
	until(t, "nothing is left", 20*time.Minute, func() bool { return n.mounted() == 0 && len(c.inUse("n1")) == 0 })
}

// One kind of request gets no answer: work that does not need it continues, the rest
// waits, and the problem gives the reason until the answers come.
//
// Faults: A225.
func TestARequestWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.server.Fail(nodeAuthorizer)
		var hangs atomic.Bool
		c.between = func(next http.RoundTripper, _ *node) http.RoundTripper {
			return bad{next: next, before: func(r *http.Request) time.Duration {
				if hangs.Load() && isStatus(r) {
					return time.Hour
				}
				return 0
			}}
		}
		n := c.newNode("n1")
		c.config("shared")
		c.bind("n1", "stays", "shared")
		n.start()
		until(t, "the first pod is ready", time.Minute, func() bool { return n.ready() == 1 })
		hangs.Store(true)
		c.bind("n1", "comes", "shared")
		until(t, "the problem is shown", 2*time.Minute, func() bool { return n.away() != nil })
		if away := n.away(); away.Cause != outage.Silent || away.Vital || !strings.Contains(away.Text("server"), "status.volumesInUse") {
			t.Errorf("problem: %s", away.Text("server"))
		}
		if n.count("Stage") != 1 || n.count("Unpublish") != 0 || n.ready() != 1 {
			t.Errorf("%d stages, %d pods are ready", n.count("Stage"), n.ready())
		}
		hangs.Store(false)
		until(t, "both are ready", 3*time.Minute, func() bool { return n.ready() == 2 && n.away() == nil })
	})
}

// If a server says how long to wait, the node writes nothing before that time.
//
// Faults: A226.
func TestRetryAfterIsHeededByAllThatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config("shared")
		n := c.newNode("n1")
		c.bind("n1", "p", "shared")
		var refuses atomic.Bool
		refuses.Store(true)
		c.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if refuses.Load() && slices.Contains([]string{"create", "update", "patch"}, r.Verb) {
				return &fakeapi.Answer{Code: http.StatusTooManyRequests, RetryAfter: "200"}
			}
			return nil
		})
		n.start()
		advance(199 * time.Second)
		for what, times := range counted(c.server.Took()) {
			if verb, _, _ := strings.Cut(what, " "); times > 1 && slices.Contains([]string{"create", "update", "patch"}, verb) {
				t.Errorf("%d times: %s", times, what)
			}
		}
		if away := n.away(); away == nil || away.Cause != outage.Busy {
			t.Errorf("outage: %v", away)
		}
		refuses.Store(false)
		until(t, "the pod is ready", 15*time.Minute, func() bool { return n.ready() == 1 && n.away() == nil })
	})
}
