package stats

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// unwatched returns n subjects of one driver that have figures only.
func unwatched(n int, a *asked) []subject {
	var all []subject
	for i := range n {
		s := a.subject(fmt.Sprint("v", i))
		s.Watched = false
		all = append(all, s)
	}
	return all
}

// The collector asks for no figures while no client reads them, and does not even look for
// subjects. Once a client reads, it soon asks all, however many share a driver, and
// continues until some minutes after the last read.
func TestFiguresThatNobodyReadsAreNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		a := &asked{answer: func(ctx context.Context) (Report, error) {
			time.Sleep(100 * time.Millisecond)
			return full(1)(ctx)
		}}
		c, n, _ := run(t, unwatched(many, a)...)
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.count() != 0 || n.looked() != 1 || len(c.LastStats()) != 0 {
			t.Errorf("in an hour without readers asked %d times, looked %d times", a.count(), n.looked())
		}
		c.Stats(t.Context())
		time.Sleep(many / perDriver * 100 * time.Millisecond)
		synctest.Wait()
		for _, s := range c.LastStats() {
			if s.At.IsZero() {
				t.Fatalf("%s was not asked", s.Key)
			}
		}
		if a.count() != many {
			t.Errorf("after a read %d were asked, want all %d once", a.count(), many)
		}
		time.Sleep(readLease)
		synctest.Wait()
		asked, looked := a.count(), n.looked()
		if asked < 2*many || asked > 6*many {
			t.Errorf("asked %d times in the minutes after a read", asked)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.count() != asked || n.looked() > looked+1 {
			t.Errorf("long after a read asked %d times more, looked %d times", a.count()-asked, n.looked()-looked)
		}
	})
}

// Health is watched without readers, but only of subjects that can report it, even if they
// appear when none was watched.
func TestHealthIsWatchedWithoutReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &asked{answer: full(1)}, &asked{answer: full(1)}
		_, n, _ := run(t, unwatched(1, a)...)
		time.Sleep(time.Hour)
		n.set(append(unwatched(1, a), b.subject("watched"))...)
		synctest.Wait()
		if b.count() != 1 {
			t.Errorf("a volume that came was asked %d times", b.count())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.count() != 0 || b.count() < 28 || b.count() > 62 {
			t.Errorf("asked %d times for figures alone, %d times for health", a.count(), b.count())
		}
	})
}

// A storm of changes causes one look every ten seconds.
func TestChangesAreLookedAtSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{answer: full(1)}
		_, n, _ := run(t)
		for range 600 {
			n.set(unwatched(1, a)...)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if got := n.looked(); got < 6 || got > 8 {
			t.Errorf("looked %d times in a minute of changes", got)
		}
	})
}

// The first reader waits for answers, a second at most; later readers do not wait.
func TestWhoReadsFirstWaitsForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		fine, hung := &asked{answer: full(1)}, &asked{answer: func(context.Context) (Report, error) { <-free; return Report{}, nil }}
		c, n, _ := run(t, unwatched(20, fine)...)
		synctest.Wait()
		read := func(want int) time.Duration {
			t.Helper()
			began, has := time.Now(), 0
			for _, s := range c.Stats(t.Context()) {
				if !s.At.IsZero() {
					has++
				}
			}
			if has != want {
				t.Errorf("%d have figures, want %d", has, want)
			}
			return time.Since(began)
		}
		if took := read(20); took != 0 {
			t.Errorf("waited %s for answers that came at once", took)
		}
		time.Sleep(time.Hour)
		s := hung.subject("hung")
		s.Watched = false
		n.set(append(unwatched(20, fine), s)...)
		synctest.Wait()
		if took := read(20); took != readPatience {
			t.Errorf("waited %s for an answer that does not come, want %s", took, readPatience)
		}
		if took := read(20); took != 0 {
			t.Errorf("the second waited %s", took)
		}
		time.Sleep(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if c.Stats(ctx); !time.Now().Equal(began) {
			t.Errorf("who went away waited %s", time.Since(began))
		}
	})
}

// The first scrape after a while has no figures, and the next has current ones.
func TestMetricsShowNoFiguresOfLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{answer: full(40)}
		s := a.subject("data")
		s.Watched = false
		c, _, _ := run(t, s)
		scrape := func(want int) {
			t.Helper()
			synctest.Wait()
			got := series(t, c)
			if used, has := got["used_bytes"]; has != (want > 0) || used != float64(want) {
				t.Errorf("%v, want %d used", got, want)
			}
		}
		scrape(0)
		scrape(40)
		time.Sleep(time.Hour)
		a.say(full(50))
		scrape(0)
		scrape(50)
		a.say(func(ctx context.Context) (Report, error) { <-ctx.Done(); return Report{}, ctx.Err() })
		for range 20 { // an answer given since the first read stays, even if the driver fails later
			time.Sleep(time.Minute)
			scrape(50)
		}
		time.Sleep(time.Hour)
		a.say(func(context.Context) (Report, error) {
			return Report{Measured: true, Bytes: Usage{Total: 100, Used: 60}}, errors.New("its health is not known")
		})
		scrape(0)
		scrape(60)
	})
}

// A queued question is dropped after the last read: no client wants the answer any more.
func TestWhoWaitsInTheQueueIsNotAskedAfterTheLastRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{answer: func(ctx context.Context) (Report, error) { <-ctx.Done(); return Report{}, ctx.Err() }}
		c, _, _ := run(t, unwatched(1000, a)...)
		c.Stats(t.Context())
		time.Sleep(readLease + askDeadline)
		synctest.Wait()
		asked := a.count()
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.count() != asked || asked == 0 {
			t.Errorf("asked %d times while it was read, %d times after", asked, a.count()-asked)
		}
	})
}

// A reader waits until the subjects have been listed: an empty queue before that does not
// mean that all have answered.
func TestWhoReadsWaitsForALook(t *testing.T) {
	n := &node{subjects: unwatched(1, &asked{answer: full(1)})}
	c := New(Config{Subjects: n.each, Question: n.question})
	c.want()
	c.settle()
	if c.answered == nil {
		t.Error("a question that ends before the look lets go who waits")
	}
}

// A look allocates nothing for a volume that is not watched, since looks are frequent.
func TestALookCostsNothingForAVolumeThatIsNotWatched(t *testing.T) {
	subjects := unwatched(1000, &asked{})
	n := &node{subjects: subjects}
	c := New(Config{Subjects: n.each})
	if allocs := testing.AllocsPerRun(10, func() { c.look(t.Context(), time.Now()) }); allocs > 10 {
		t.Errorf("%v allocations for 1,000 volumes", allocs)
	}
}
