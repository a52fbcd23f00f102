package stats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// asked is a subject that counts its calls.
type asked struct {
	mu     sync.Mutex // guards the fields below
	calls  int
	answer func(ctx context.Context) (Report, error)
}

func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

func (a *asked) say(answer func(ctx context.Context) (Report, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// subject returns a subject that is watched, unless the test changes that.
func (a *asked) subject(key string) subject {
	return subject{
		Subject: Subject{Key: key, Driver: "d", Claim: "default/" + key, Watched: true},
		Question: Question{Source: "d", Ask: func(ctx context.Context) (Report, error) {
			a.mu.Lock()
			a.calls++
			answer := a.answer
			a.mu.Unlock()
			return answer(ctx)
		}},
	}
}

// subject is a Subject with its Question; without Ask it cannot be asked.
type subject struct {
	Subject
	Question
}

// node is a list of subjects, which may change.
type node struct {
	mu       sync.Mutex // guards the fields below
	subjects []subject
	changed  chan struct{}
	looks    int
}

func (n *node) each(yield func(Subject) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	for _, s := range n.subjects {
		if !yield(s.Subject) {
			return
		}
	}
}

func (n *node) looked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.looks
}

func (n *node) question(of Subject) (Question, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.subjects {
		if s.Key == of.Key {
			return s.Question, s.Ask != nil
		}
	}
	return Question{}, false
}

func (n *node) change() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *node) set(subjects ...subject) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subjects = subjects
	close(n.changed)
	n.changed = make(chan struct{})
}

// run runs a collector for subjects until the test ends.
func run(t *testing.T, subjects ...subject) (*Collector, *node, *[]Status) {
	t.Helper()
	var told []Status
	n := &node{subjects: subjects, changed: make(chan struct{})}
	c := New(Config{Subjects: n.each, Question: n.question, Changed: n.change, OnHealth: func(s Status) { told = append(told, s) }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c, n, &told
}

// series returns the samples of claim default/data, without the common prefix of their names.
func series(t *testing.T, c *Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "kubelet_volume_stats_")
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); ok && len(l) == 2 && l[0].GetValue() == "default" && l[1].GetName() == "persistentvolumeclaim" && l[1].GetValue() == "data" {
				found[name] = m.GetGauge().GetValue()
			}
		}
	}
	return found
}

func full(n int64) func(context.Context) (Report, error) {
	return func(context.Context) (Report, error) {
		return Report{Bytes: Usage{Total: 100, Used: n, Available: 100 - n}, Inodes: Usage{Total: 10, Used: 1, Available: 9}}, nil
	}
}

// A volume is asked every minute or two, and a client that reads gets the last answer with
// its time, and never causes a call.
//
// Items: O01, O03.
func TestAVolumeIsAskedForEveryMinuteOrTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{answer: full(40)}
		c, n, _ := run(t, a.subject("data"))
		synctest.Wait()
		if a.count() != 1 {
			t.Fatalf("asked %d times at first", a.count())
		}
		for range 100 {
			c.Stats(t.Context())
		}
		began := time.Now()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := a.count(); n < 28 || n > 61 {
			t.Errorf("asked %d times in an hour", n)
		}
		s := c.LastStats()
		if len(s) != 1 || s[0].Bytes.Used != 40 || !s[0].At.After(began) || time.Since(s[0].At) > 2*time.Minute+lookEvery {
			t.Errorf("%+v", s)
		}
		want := map[string]float64{"capacity_bytes": 100, "available_bytes": 60, "used_bytes": 40, "inodes": 10, "inodes_free": 9, "inodes_used": 1}
		if got := series(t, c); !maps.Equal(got, want) {
			t.Errorf("series %v, want %v", got, want)
		}
		n.set()
		time.Sleep(lookEvery)
		synctest.Wait()
		if s := c.LastStats(); len(s) != 0 {
			t.Errorf("of a volume that is gone: %+v", s)
		}
	})
}

// A volume whose driver cannot report is neither shown nor logged.
//
// Items: O02.
func TestADriverThatCannotSayIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{answer: func(context.Context) (Report, error) { return Report{}, fmt.Errorf("call: %w", ErrNone) }}
		c, _, told := run(t, a.subject("data"), subject{Subject: Subject{Key: "mute", Driver: "d", Watched: true}})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s := c.LastStats(); len(s) != 0 || len(*told) != 0 {
			t.Errorf("%+v, told %+v", s, *told)
		}
		if got := series(t, c); len(got) != 0 {
			t.Errorf("series %v", got)
		}
	})
}

// A change of health is reported once, as one status, in whatever form the driver reports it.
//
// Items: O03, O04, N-84.
// Scenarios: U-92.
func TestHealthIsToldWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judged := func(wrong ...Condition) func(context.Context) (Report, error) {
			return func(context.Context) (Report, error) { return Report{Diagnosed: true, Conditions: wrong}, nil }
		}
		a := &asked{answer: judged()}
		c, _, told := run(t, a.subject("data"))
		step := func(conditions ...Condition) Status {
			t.Helper()
			a.say(judged(conditions...))
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			return c.LastStats()[0]
		}
		synctest.Wait()
		if s := c.LastStats()[0]; s.Health != Healthy || len(*told) != 0 {
			t.Errorf("%+v, told %+v", s, *told)
		}
		gauge := func(want float64) {
			t.Helper()
			if got := series(t, c); !maps.Equal(got, map[string]float64{"health_status_abnormal": want}) {
				t.Errorf("series %v, want %v", got, want)
			}
		}
		gauge(0)
		bad := Condition{Status: "DEGRADED", Reason: "OneDisk", Message: "one disk of two"}
		s := step(bad)
		since := s.HealthSince
		if s.Health != Abnormal || s.Conditions[0] != bad || len(*told) != 1 || bad.String() != "DEGRADED: OneDisk: one disk of two" {
			t.Errorf("%+v, told %+v", s, *told)
		}
		gauge(1)
		if s := step(bad); !s.HealthSince.Equal(since) || len(*told) != 1 {
			t.Errorf("what did not change is told again: %+v", *told)
		}
		if s := step(); s.Health != Healthy || len(*told) != 2 {
			t.Errorf("%+v, told %+v", s, *told)
		}
	})
}

// Each kind and reason of trouble with a driver's storage is a series, in Kubernetes'
// words, until the trouble has passed; trouble of a volume has no series.
//
// Items: Q08.
func TestTroubleOfADriversStorageIsASeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := func(wrong ...Condition) func(context.Context) (Report, error) {
			return func(context.Context) (Report, error) { return Report{Diagnosed: true, Conditions: wrong}, nil }
		}
		trouble := []Condition{
			{Status: "STORAGE_UNREACHABLE", Reason: "NoPath"},
			{Status: "STORAGE_DEGRADED", Reason: "Slow", AccessMode: state.ReadWriteMany},
			{Status: "STORAGE_DEGRADED", Reason: "Slow"},
		}
		a, volume := &asked{answer: say(trouble...)}, &asked{answer: say(trouble...)}
		storage := a.subject(StorageKey("d"))
		storage.Claim = ""
		c, _, _ := run(t, storage, volume.subject("data"))
		synctest.Wait()
		const want = `
# HELP csi_node_storage_health_status 1 for what a driver says is wrong with the storage behind it, as seen from this node.
# TYPE csi_node_storage_health_status gauge
csi_node_storage_health_status{driver_name="d",reason="NoPath",status="StorageUnreachable"} 1
csi_node_storage_health_status{driver_name="d",reason="Slow",status="StorageDegraded"} 1
`
		if err := testutil.CollectAndCompare(c, strings.NewReader(want), "csi_node_storage_health_status"); err != nil {
			t.Error(err)
		}
		a.say(say())
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if err := testutil.CollectAndCompare(c, strings.NewReader(""), "csi_node_storage_health_status"); err != nil {
			t.Error(err)
		}
	})
}

// A call that hangs is shown with its age, is not repeated, and takes only its driver's share.
//
// Items: N-82.
// Faults: A044.
func TestAQuestionThatHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		hung := &asked{answer: func(context.Context) (Report, error) { <-free; return Report{}, errors.New("too late") }}
		fine := &asked{answer: full(1)}
		var subjects []subject
		for i := range 2 * perDriver {
			subjects = append(subjects, hung.subject(fmt.Sprint("hung", i)))
		}
		other := fine.subject("fine")
		other.Driver = "e"
		subjects = append(subjects, other)
		c, _, _ := run(t, subjects...)
		began := time.Now()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if hung.count() != perDriver {
			t.Errorf("a driver that hangs was asked %d times, want %d", hung.count(), perDriver)
		}
		if fine.count() < 14 {
			t.Errorf("another was asked %d times", fine.count())
		}
		for _, s := range c.LastStats() {
			if s.Driver == "d" && !s.Asking.Equal(began) {
				t.Errorf("%+v", s)
			}
		}
		hung.say(full(2))
		close(free)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, s := range c.LastStats() {
			if s.At.IsZero() || s.Error != "" || !s.Asking.IsZero() {
				t.Errorf("after it is cured: %+v", s)
			}
		}
	})
}

// Items: Q06.
func TestTheLastAnswerOutlivesAQuestionThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{answer: full(40)}
		c, _, _ := run(t, a.subject("data"))
		synctest.Wait()
		at := c.LastStats()[0].At
		a.say(func(context.Context) (Report, error) { return Report{}, errors.New("boom") })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s := c.LastStats()[0]; s.Bytes.Used != 40 || !s.At.Equal(at) || s.Error != "boom" {
			t.Errorf("%+v", s)
		}
	})
}

// If an answer fails in part, the collector uses the rest, and keeps the earlier values for
// the failed part.
func TestAnAnswerThatFailsInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{answer: full(40)}
		c, _, _ := run(t, a.subject("data"))
		synctest.Wait()
		ill := []Condition{{Status: "INACCESSIBLE"}}
		for _, step := range []struct {
			r      Report
			used   int64
			health Health
		}{
			{Report{Diagnosed: true, Conditions: ill}, 40, Abnormal},
			{Report{Measured: true, Bytes: Usage{Total: 100, Used: 50}}, 50, Abnormal},
			{Report{Diagnosed: true}, 50, Healthy},
			{Report{}, 50, Healthy},
		} {
			a.say(func(context.Context) (Report, error) { return step.r, errors.New("boom") })
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			s := c.LastStats()[0]
			old := time.Since(s.At) > 5*time.Minute
			if s.Bytes.Used != step.used || s.Health != step.health || s.Error != "boom" || old != (!step.r.Diagnosed && !step.r.Measured) {
				t.Errorf("after %+v: %+v", step.r, s)
			}
		}
	})
}

// A slow call gets the time that it needs, and takes no more than a twentieth of all time.
func TestWhoTakesLongIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{answer: func(ctx context.Context) (Report, error) {
			select {
			case <-time.After(time.Minute):
				return full(40)(ctx)
			case <-ctx.Done():
				return Report{}, context.Cause(ctx)
			}
		}}
		s := a.subject("data")
		s.Deadline = 10 * time.Minute
		c, _, _ := run(t, s)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := a.count(); n < 5 || n > 6 {
			t.Errorf("asked %d times in two hours", n)
		}
		if got := c.LastStats()[0]; got.Bytes.Used != 40 || got.Error != "" {
			t.Errorf("%+v", got)
		}
	})
}

// Storage that dies is asked at once, and again when it is back; storage that does not
// change is not asked more often.
func TestStorageThatDiesIsAskedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		a := &asked{answer: full(1)}
		s := a.subject("data")
		s.Mortal, s.Alive = true, func(context.Context) error {
			if dead.Load() {
				return errors.New("not connected")
			}
			return nil
		}
		c, _, told := run(t, s)
		time.Sleep(askEvery)
		synctest.Wait()
		if a.count() != 1 {
			t.Errorf("asked %d times in the first minute, want once", a.count())
		}
		within := func(health Health) {
			t.Helper()
			time.Sleep(2 * lookEvery)
			synctest.Wait()
			if s := c.LastStats()[0]; s.Health != health || !s.Asking.IsZero() {
				t.Errorf("health %q, want %q; %+v", s.Health, health, s)
			}
		}
		dead.Store(true)
		a.say(func(context.Context) (Report, error) {
			return Report{Diagnosed: true, Conditions: []Condition{{Message: "dead", Kernel: true}}}, nil
		})
		within(Abnormal)
		dead.Store(false)
		a.say(func(context.Context) (Report, error) { return Report{Diagnosed: true}, nil })
		within(Healthy)
		if len(*told) != 2 {
			t.Errorf("told %+v", *told)
		}
	})
}
