package manager

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// pen is a container runtime whose answers the test sets.
type pen struct {
	answers map[state.PodUID]func(string)
	asked   int
}

func (p *pen) Ask(pod state.PodUID, answer func(string)) (forget func()) {
	p.asked++
	p.answers[pod] = answer
	return func() { delete(p.answers, pod) }
}

// runtime has the manager ask p. The loop and the test take turns, by synctest.Wait.
func runtime(p *pen) option { return func(c *Config) { c.Containers = p } }

func newPen() *pen { return &pen{answers: map[state.PodUID]func(string){}} }

// wantHeld checks why the pod's volume stays.
func wantHeld(t *testing.T, l *life, words string) {
	t.Helper()
	if v, _ := l.Volume(state.SharedID("d", "v")); !strings.Contains(v.Held.Reason, words) {
		t.Errorf("held: %q, want %q", v.Held.Reason, words)
	}
}

// A pod's mounts stay until the runtime says that none of its containers runs, in whichever
// way the pod left, and across a restart.
//
// Items: A33.
// Faults: A008.
func TestAPodThatLeftKeepsItsVolumesWhileItsContainersLive(t *testing.T) {
	stopped := podWant("a", "v")
	stopped.Stopped = true
	for name, leave := range map[string]func(*life){
		"removed": func(l *life) { l.RemovePod("a") },
		"ended":   func(l *life) { l.SetPod(stopped) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d, p := newFakeNode(t), newDisk(), newPen()
				l := live(t, h, d, runtime(p))
				l.up(h)
				l.SetPod(podWant("a", "v"))
				mounted(t, l, "a")
				before := len(h.calls())
				leave(l)
				rest()
				wantHeld(t, l, reasonAsked)
				p.answers["a"]("container web still runs")
				rest()
				wantHeld(t, l, "not unmounted: container web still runs")
				_ = l.stop()
				p = newPen()
				l = live(t, h, d, runtime(p), sources("s"))
				l.up(h)
				rest()
				if p.asked != 0 {
					t.Error("asked before every source has spoken: the answer would be out of date")
				}
				l.SourceSynced("s")
				synctest.Wait()
				wantHeld(t, l, reasonAsked)
				p.answers["a"]("container web still runs")
				rest()
				equal(t, "calls", h.calls()[before:], nil)
				p.answers["a"]("")
				gone(t, l, "a")
				rest()
				equal(t, "calls", h.calls()[before:], []string{"Unpublish d^v a", "Unstage d^v"})
				if len(p.answers) != 0 || p.asked != 1 {
					t.Errorf("asked %d times, and %d questions are left", p.asked, len(p.answers))
				}
			})
		})
	}
}

// A pod that is listed again before the runtime has answered keeps its mounts, and an answer
// to the old question is ignored.
func TestAPodThatComesBackIsAskedAboutAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, p := newFakeNode(t), newDisk(), newPen()
		l := live(t, h, d, runtime(p))
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		before := len(h.calls())
		l.RemovePod("a")
		synctest.Wait()
		old := p.answers["a"]
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		old("")
		rest()
		mounted(t, l, "a")
		l.RemovePod("a")
		synctest.Wait()
		old("")
		rest()
		equal(t, "calls", h.calls()[before:], nil)
		p.answers["a"]("")
		gone(t, l, "a")
		rest()
		equal(t, "calls", h.calls()[before:], []string{"Unpublish d^v a", "Unstage d^v"})
	})
}

// An operator who empties the node says that no container runs; the runtime is not asked.
func TestAnEmptiedNodeDoesNotWaitForTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, p := newFakeNode(t), newDisk(), newPen()
		l := live(t, h, d, runtime(p))
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.RemovePod("a")
		synctest.Wait()
		l.SetDrain(DrainEmpty)
		gone(t, l, "a")
	})
}
