package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// revised is the pod's wish with a new revision of volume v.
func revised(pod, revision string) state.PodWant {
	p := podWant(pod, "v")
	p.Volumes[0].Revision = revision
	return p
}

// Whatever call fails, and however: in five minutes there are few attempts.
//
// Faults: A049.
func TestNoFailureIsRepeatedHotly(t *testing.T) {
	const most = 11 // pauses from half a second on that double
	for _, verb := range []string{"Attach", "Stage", "Publish", "Republish", "Expand", "Unpublish", "Unstage", "Detach"} {
		for _, how := range []fault{
			answer(state.Failed, "x", "Internal"), answer(state.Uncertain, "x", "DeadlineExceeded"), answer(state.Refused, "x", "InvalidArgument"),
			answer(state.Final, "x", "Unimplemented"), answer(state.Uncertain, "x", "Aborted"),
			{err: errors.New("no code")},
			{lie: true},
		} {
			if how.lie && strings.HasSuffix(verb, "tach") {
				continue // nothing of it shows on a node
			}
			synctest.Test(t, func(t *testing.T) {
				h, d := newFakeNode(t), newDisk()
				l := live(t, h, d)
				l.DriverUp(DriverInfo{Name: "d", Stage: true, Attach: true, Expand: true, MountsTarget: true}, h)
				call, _ := strings.CutPrefix(verb, "Re") // which is a Publish
				call = strings.ToUpper(call[:1]) + call[1:]
				fails := func() {
					h.fails(func(c string) fault {
						if strings.HasPrefix(c, call+" ") {
							return how
						}
						return fault{}
					})
				}
				switch verb {
				case "Attach", "Stage", "Publish":
					fails()
					l.SetPod(podWant("a", "v"))
				default:
					l.SetPod(podWant("a", "v"))
					mounted(t, l, "a")
					fails()
					p := revised("a", "2")
					p.Volumes[0].SizeBytes = 5
					if verb != "Republish" {
						p.Volumes[0].Revision = ""
					}
					if l.SetPod(p); verb != "Republish" && verb != "Expand" {
						l.RemovePod("a")
					}
				}
				h.mu.Lock()
				before := h.took[call]
				h.mu.Unlock()
				time.Sleep(5 * time.Minute)
				h.mu.Lock()
				defer h.mu.Unlock()
				if got := h.took[call] - before; got > most {
					t.Errorf("%s that fails by %v: %d calls in 5 minutes", verb, how.err, got)
				}
			})
		}
	}
}

// The driver is away for a day, while volumes are mounted, wanted and to be removed: no call is
// tried, and almost nothing is logged.
//
// Faults: A050.
func TestADriverThatIsMissingForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		var log bytes.Buffer
		l := live(t, h, d, func(c *Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		l.up(h)
		for i := range 50 {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
			mounted(t, l, fmt.Sprint("p", i))
		}
		l.DriverDown("d", "its socket is gone")
		for i := range 25 {
			l.RemovePod(state.PodUID(fmt.Sprint("p", i)))
			l.SetPod(podWant(fmt.Sprint("new", i), fmt.Sprint("new", i)))
		}
		synctest.Wait()
		calls, said := len(h.calls()), log.Len()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		equal(t, "calls", h.calls()[calls:], nil)
		if more := log.Len() - said; more > 10_000 {
			t.Errorf("%d bytes of log", more)
		}
		l.up(h)
		for i := range 25 {
			gone(t, l, fmt.Sprint("p", i))
			mounted(t, l, fmt.Sprint("new", i))
		}
		_ = l.stop()
	})
}

// Two instances of a driver run for a while, and a hundred calls are in flight when the second
// one takes over: each call ends with the instance that has it, none is lost, and all later
// calls go to the second.
//
// Faults: A074.
func TestAnUpdateOfADriverLosesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		h.fails(func(call string) fault { return fault{takes: time.Minute} })
		first, second := &instance{fakeNode: h}, &instance{fakeNode: h}
		l := live(t, h, d, func(c *Config) { c.Limits = plan.Limits{Node: 200, Driver: 200, Reserved: 8} })
		info := DriverInfo{Name: "d", Stage: true, MountsTarget: true}
		l.DriverUp(info, first)
		const pods = 100
		for i := range pods {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		time.Sleep(time.Second)
		h.mu.Lock()
		if len(h.inFlight) != pods {
			t.Errorf("%d calls in flight", len(h.inFlight))
		}
		h.mu.Unlock()
		l.DriverUp(info, second)
		synctest.Wait()
		for i := range pods {
			mounted(t, l, fmt.Sprint("p", i))
		}
		if len(first.calls) != pods || len(second.calls) != pods || h.took["Stage"] != pods || h.took["Publish"] != pods {
			t.Errorf("the first made %d calls, the second %d: %v", len(first.calls), len(second.calls), h.took)
		}
		if i := slices.IndexFunc(second.calls, func(c string) bool { return !strings.HasPrefix(c, "Publish") }); i >= 0 {
			t.Errorf("repeated: %s", second.calls[i])
		}
	})
}

// instance is one process of a driver, which knows the calls that it was sent.
type instance struct {
	*fakeNode
	calls []string
}

func (i *instance) note(call string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls = append(i.calls, call)
}

func (i *instance) Stage(ctx context.Context, v state.Volume) error {
	i.note("Stage " + string(v.ID))
	return i.fakeNode.Stage(ctx, v)
}

func (i *instance) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	i.note("Publish " + string(v.ID))
	return i.fakeNode.Publish(ctx, v, pod)
}

// The clock was set forward or back by a day while no daemon ran: nothing expires early, no
// pause becomes longer, and nothing is removed twice.
//
// Faults: A065.
func TestAClockThatJumpsChangesNothing(t *testing.T) {
	for _, jump := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			l := live(t, h, d)
			l.up(h)
			l.SetPod(podWant("a", "v"))
			l.SetPod(podWant("b", "w"))
			mounted(t, l, "a")
			mounted(t, l, "b")
			h.fails(func(string) fault { return answer(state.Failed, "NodeUnpublishVolume", "Internal") })
			l.RemovePod("b")
			rest()
			_ = l.stop()
			h.fails(nil)
			shifted := map[state.VolumeID]*state.Volume{}
			for id, v := range d.records(t) {
				for pod, m := range v.Mounts { // as the clock of that time has it
					if r := m.Retry(); r.Attempts > 0 {
						r.NotBefore, r.Since = r.NotBefore.Add(jump), r.Since.Add(jump)
						m.Failed = &r
					}
					v.Mounts[pod] = m
				}
				shifted[id] = &v
			}
			if err := d.Commit(t.Context(), shifted); err != nil {
				t.Fatal(err)
			}
			before := len(h.calls())
			l = live(t, h, d, func(c *Config) { c.Sources = []string{"s"} }) // or a counts as gone until it is told of
			l.up(h)
			l.SetPod(podWant("a", "v"))
			l.SourceSynced("s")
			began := time.Now()
			gone(t, l, "b")
			if took := time.Since(began); took > time.Second {
				t.Errorf("jump of %v: the removal took %v", jump, took)
			}
			rest()
			equal(t, "calls", h.calls()[before:], []string{"Unpublish d^w b", "Unstage d^w"})
		})
	}
}

// A driver crashes when it has more than eight calls at once, and three hundred pods want it
// after a boot: its limit is lowered until it survives, and all pods get their volumes.
//
// Faults: A051.
func TestADriverThatDiesOfTooManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		deaths, dead := 0, time.Time{}
		h.fails(func(call string) fault {
			if !strings.HasPrefix(call, "Stage") {
				return fault{}
			}
			now := time.Now()
			if len(h.inFlight) > 8 && now.After(dead) {
				deaths, dead = deaths+1, now.Add(5*time.Second)
				l.DriverDown("d", "it died")
				time.AfterFunc(5*time.Second, func() { l.up(h) })
			}
			if !now.After(dead) {
				return answer(state.Uncertain, "NodeStageVolume", "Unavailable")
			}
			return fault{takes: time.Second}
		})
		const pods = 300
		for i := range pods {
			l.SetPod(podWant(fmt.Sprintf("p%03d", i), fmt.Sprintf("v%03d", i)))
		}
		for i := range pods {
			mounted(t, l, fmt.Sprintf("p%03d", i))
		}
		if deaths > 25 { // without a lower limit it would crash for ever
			t.Errorf("it died %d times", deaths)
		}
	})
}
