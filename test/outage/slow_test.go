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

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// bad is a way to the server on which answers are late, lost, or failures.
type bad struct {
	next http.RoundTripper
	// before is how long a request is under way to the server, after how long the
	// answer is back.
	before, after func(*http.Request) time.Duration
	// lost: the request is carried out, and its answer does not come.
	lost func(*http.Request) bool
	// fails is a failure in place of an answer, nil for none.
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

// RoundTrip implements http.RoundTripper. What was sent arrives, whether the client
// still waits for the answer or not.
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

// between5And29 is how long an answer takes, by chance, so that answers come out of order.
func between5And29(dice *rand.Rand) func(*http.Request) time.Duration {
	return func(*http.Request) time.Duration {
		return 5*time.Second + time.Duration(dice.Int64N(int64(24*time.Second)))
	}
}

// Answers take 5 to 29 seconds, come out of order, are lost after they were carried
// out, or are 500 and 503 with Retry-After, for every kind of request. Pods come, are
// replaced and go: no volume of a pod that stays is touched, nothing is mounted twice,
// nothing is made of a volume that is not in use and attached, nothing is detached that
// is mounted, and in the end nothing is left.
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

// fails has half of the answers be a failure.
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

// A single kind of request gets no answer at all: what does not need it goes on, the
// rest waits, and the problem says why, and ends.
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

// A server that says how long it is not to be asked to write anything is not asked before.
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
