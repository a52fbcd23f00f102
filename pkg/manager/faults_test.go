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

// revised is the pod's wish for other content of volume v.
func revised(pod, revision string) state.PodWant {
	p := podWant(pod, "v")
	p.Volumes[0].Revision = revision
	return p
}

// A renewal that fails five times touches no mount, and the sixth brings the new
// content to the mount that the pod has.
//
// Faults: A022.
func TestARenewalThatFailsLeavesTheMountAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(revised("a", "1"))
		mounted(t, l, "a")
		h.fails(times(5, "Publish", answer(state.Failed, "NodePublishVolume", "Internal")))
		before := len(h.calls())
		l.SetPod(revised("a", "2"))
		rest()
		equal(t, "calls", h.calls()[before:], slices.Repeat([]string{"Publish d^v a"}, 6))
		v, _ := l.Volume("d^v")
		if m := v.Volume.Mounts["a"]; m.Phase != state.Present || m.Revision != "2" || m.Retry().Attempts != 0 {
			t.Errorf("%+v", m)
		}
	})
}

// A driver that unmounts while it renews, and then fails: the pod's volume is not
// relied on before it is there again, and it is made again.
//
// Faults: A023.
func TestARenewalThatTakesTheMountAwayIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(revised("a", "1"))
		mounted(t, l, "a")
		broken := true
		h.fails(func(call string) fault {
			if !broken || !strings.HasPrefix(call, "Publish") {
				return fault{}
			}
			delete(h.published, "/pods/a/v")
			return answer(state.Failed, "NodePublishVolume", "Internal")
		})
		l.SetPod(revised("a", "2"))
		synctest.Wait()
		for range 3 {
			if err := l.Verify(t.Context(), "a"); err == nil {
				t.Error("a container may start on what is not mounted")
			}
			time.Sleep(time.Minute)
		}
		h.mu.Lock()
		broken = false
		h.mu.Unlock()
		mounted(t, l, "a")
		if err := l.Verify(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if slices.Contains(h.calls(), "Unpublish d^v a") {
			t.Errorf("calls: %v", h.calls())
		}
	})
}

// A volume that is made anew with the handle of one that was used before has
// other attributes: what was staged of the old one goes before it is staged.
//
// Faults: A025.
func TestAVolumeMadeAnewIsStagedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		h.fails(times(3, "Unstage", answer(state.Failed, "NodeUnstageVolume", "Internal")))
		before := len(h.calls())
		l.RemovePod("a")
		p := podWant("b", "v")
		p.Volumes[0].Spec.Context = map[string]string{"server": "another"}
		l.SetPod(p)
		mounted(t, l, "b")
		unstages := slices.Repeat([]string{"Unstage d^v"}, 4)
		equal(t, "calls", h.calls()[before:], slices.Concat([]string{"Unpublish d^v a"}, unstages, []string{"Stage d^v", "Publish d^v b"}))
		if v, _ := l.Volume("d^v"); v.Volume.Spec.Context["server"] != "another" {
			t.Errorf("staged as %+v", v.Volume.Spec)
		}
	})
}

// The cluster has attached the volume anew, as another device or as the same one:
// what is staged of the old attachment goes before anything else is made of it.
//
// Faults: A026.
func TestAVolumeThatWasAttachedAnewIsStagedAnew(t *testing.T) {
	for _, sameDevice := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHouse(t), newDisk()
			l := live(t, h, d)
			l.up(h)
			on := func(pod, attachment string) state.PodWant {
				p := podWant(pod, "v")
				if p.Volumes[0].Spec.Attachment = attachment; !sameDevice {
					p.Volumes[0].Spec.PublishContext = map[string]string{"device": attachment}
				}
				return p
			}
			l.SetPod(on("a", "1"))
			mounted(t, l, "a")
			before := len(h.calls())
			l.RemovePod("a")
			l.SetPod(on("b", "2"))
			mounted(t, l, "b")
			equal(t, "calls", h.calls()[before:], []string{"Unpublish d^v a", "Unstage d^v", "Stage d^v", "Publish d^v b"})
			// While a pod has it, what it has stays, and nobody else gets it so.
			before = len(h.calls())
			l.SetPod(on("c", "3"))
			rest()
			equal(t, "calls", h.calls()[before:], nil)
			if s, _ := l.Pod("c"); !strings.Contains(s.Volumes[0].BlockedBy, "attached anew") {
				t.Errorf("%+v", s)
			}
			l.RemovePod("b")
			mounted(t, l, "c")
			equal(t, "calls", h.calls()[before:], []string{"Unpublish d^v b", "Unstage d^v", "Stage d^v", "Publish d^v c"})
		})
	}
}

// A node that was cut off and comes back has lost its attachments to others:
// nothing is staged or published before they are there again, however often it
// starts, and its pods are told.
//
// Faults: A037.
func TestANodeThatWasCutOffWaitsForItsAttachments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		lost := podWant("a", "v")
		lost.Volumes[0].Hold = "VolumeAttachment csi-1 of this node is gone"
		before := len(h.calls())
		l.SetPod(lost)
		late := podWant("late", "v")
		late.Volumes[0].Hold = lost.Volumes[0].Hold
		l.SetPod(late)
		rest()
		for i := range 3 { // rebooted by who cut it off
			_ = l.stop()
			clear(h.published)
			clear(h.staged)
			l = live(t, h, d, boot(fmt.Sprint("boot-", i+2)))
			l.SetPod(lost) // before the driver, which would undo what nobody wants yet
			l.SetPod(late)
			l.up(h)
			rest()
		}
		equal(t, "calls", h.calls()[before:], nil)
		for _, pod := range []state.PodUID{"a", "late"} {
			if s, _ := l.Pod(pod); s.Ready || !strings.Contains(s.Volumes[0].BlockedBy, "csi-1") {
				t.Errorf("pod %s: %+v", pod, s)
			}
		}
		l.SetPod(podWant("a", "v")) // the attachment is there again, for whoever wants the volume
		rest()
		equal(t, "calls", h.calls()[before:], []string{"Stage d^v", "Publish d^v a", "Publish d^v late"})
	})
}

// Twenty pods whose content cannot be renewed, and whose attempts never end: a
// new pod of the same volume has its own.
//
// Faults: A046.
func TestANewPodDoesNotWaitForRenewalsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		const pods = 20
		for i := range pods {
			l.SetPod(revised(fmt.Sprint("p", i), "1"))
			mounted(t, l, fmt.Sprint("p", i))
		}
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Publish d^v p") {
				f := answer(state.Failed, "NodePublishVolume", "Internal")
				f.takes = 10 * time.Millisecond
				return f
			}
			return fault{}
		})
		for i := range pods {
			l.SetPod(revised(fmt.Sprint("p", i), "2"))
		}
		rest()
		began := time.Now()
		l.SetPod(revised("new", "2"))
		mounted(t, l, "new")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// What a call failed for may be cured by its driver's return, by a secret or an
// object that came, or by a person's word: each ends the pause at once.
//
// Faults: A048.
func TestWhatMayCureAFailureEndsItsPause(t *testing.T) {
	for name, cure := range map[string]func(l *life, h *house){
		"the driver is back": func(l *life, h *house) { l.DriverDown("d", "it died"); l.up(h) },
		"the secret came":    func(l *life, h *house) { l.RetryNow("d^v") },
		"it is attached": func(l *life, h *house) {
			p := podWant("a", "v")
			p.Volumes[0].Spec.PublishContext = map[string]string{"device": "x"}
			l.SetPod(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHouse(t), newDisk()
				h.fails(func(string) fault { return answer(state.Refused, "NodeStageVolume", "InvalidArgument") })
				l := live(t, h, d)
				l.up(h)
				l.SetPod(podWant("a", "v"))
				rest()
				if v, _ := l.Volume("d^v"); time.Until(v.Held.Until) < time.Minute {
					t.Fatalf("no pause to end: %+v", v.Held)
				}
				h.fails(nil)
				began := time.Now()
				cure(l, h)
				mounted(t, l, "a")
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// Whatever call fails, and in whichever way: five minutes of it are few calls.
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
				h, d := newHouse(t), newDisk()
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

// A day without the driver of what is mounted, of what is wanted and of what is
// to go: no call is tried, and next to nothing is said.
//
// Faults: A050.
func TestADriverThatIsMissingForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
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

// A volume that was mounted by a built-in kind is a CSI one by now: what is there
// is taken away as it was made, and what comes is made by the driver.
//
// Faults: A064.
func TestWhatWasMadeByOneKindIsRemovedByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		kind := DriverInfo{Name: "in-tree", Builtin: true, Stage: true, MountsTarget: true}
		old := func(pod string) state.PodWant {
			p := podWant(pod, "v")
			w := &p.Volumes[0]
			w.ID, w.Spec.Driver, w.Spec.Builtin = state.SharedID("in-tree", "v"), "in-tree", true
			w.Spec.StagePath = "/stage/in-tree"
			return p
		}
		l := live(t, h, d)
		l.up(h)
		l.DriverUp(kind, h)
		l.SetPod(old("a"))
		mounted(t, l, "a")
		_ = l.stop()
		before := len(h.calls())
		l = live(t, h, d, sources("s"))
		l.up(h)
		l.DriverUp(kind, h)
		translated := podWant("a", "v")
		translated.Volumes[0].Hold = "the pod has it as it was"
		l.SetPod(translated)
		l.SourceSynced("s")
		rest()
		equal(t, "calls while the pod runs", h.calls()[before:], nil)
		l.RemovePod("a")
		rest()
		l.SetPod(podWant("b", "v"))
		mounted(t, l, "b")
		equal(t, "calls", h.calls()[before:], []string{"Unpublish in-tree^v a", "Unstage in-tree^v", "Stage d^v", "Publish d^v b"})
	})
}

// Two instances of a driver are there for a while, and a hundred calls are under
// way when the second takes over: each ends with the instance that has it, none
// is lost, and all that come later go to the second.
//
// Faults: A074.
func TestAnUpdateOfADriverLosesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		h.fails(func(call string) fault { return fault{takes: time.Minute} })
		first, second := &instance{house: h}, &instance{house: h}
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
	*house
	calls []string
}

func (i *instance) note(call string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls = append(i.calls, call)
}

func (i *instance) Stage(ctx context.Context, v state.Volume) error {
	i.note("Stage " + string(v.ID))
	return i.house.Stage(ctx, v)
}

func (i *instance) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	i.note("Publish " + string(v.ID))
	return i.house.Publish(ctx, v, pod)
}

// The clock was put forward or back by a day while no daemon ran: nothing ends
// before its time, no pause lasts longer for it, and nothing is removed twice.
//
// Faults: A065.
func TestAClockThatJumpsChangesNothing(t *testing.T) {
	for _, jump := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHouse(t), newDisk()
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

// Another boot id where nothing was rebooted, as in a machine that was put to
// sleep and copied: what pods have is made sure of and not taken away.
//
// Faults: A065.
func TestAnotherBootIDTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		_ = l.stop()
		before := len(h.calls())
		l = live(t, h, d, boot("boot-2"), sources("s"))
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.SourceSynced("s")
		mounted(t, l, "a")
		rest()
		equal(t, "calls", h.calls()[before:], []string{"Stage d^v", "Publish d^v a"})
		l.RemovePod("a")
		rest()
		equal(t, "calls", h.calls()[before+2:], []string{"Unpublish d^v a", "Unstage d^v"})
	})
}

// A driver that dies of more than eight calls at once, with three hundred pods
// that want it after a boot: it is given fewer until it lives, and all have their
// volumes.
//
// Faults: A051.
func TestADriverThatDiesOfTooManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
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
		if deaths > 25 { // with as many calls as ever it would die for ever
			t.Errorf("it died %d times", deaths)
		}
	})
}
