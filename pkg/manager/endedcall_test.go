package manager

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// OnCall can distinguish an OK without effect from other failures without parsing its text.
func TestAnEndedCallSaysThatItHadNoEffect(t *testing.T) {
	for name, tt := range map[string]struct {
		fault fault
		want  bool
	}{
		"no effect": {fault{lie: true}, true},
		"a failure": {fault{err: errors.New("answered OK without the effect")}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, ended := newFakeNode(t), make(chan EndedCall, 10)
			h.fails(times(1, "Publish", tt.fault))
			l := live(t, h, newDisk(), func(c *Config) { c.OnCall = func(c EndedCall) { ended <- c } })
			l.up(h)
			l.SetPod(podWant("a", "v"))
			mounted(t, l, "a")
			<-ended // of Stage
			if got := <-ended; got.NoEffect != tt.want || got.Error == "" {
				t.Errorf("%s: got %+v", name, got)
			}
		})
	}
}

// partly is a driver whose publications leave a part undone.
type partly struct{ *fakeNode }

func (p partly) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	at, err := p.fakeNode.Publish(ctx, v, pod)
	if err != nil {
		return at, err
	}
	return at, &state.CallError{Outcome: state.Partly, Call: "fsGroup", Err: errors.New("1 files failed")}
}

// A publication that succeeds but for a part is made once, the pod gets its volume, and the record says what is missing,
// also after a restart.
func TestAPublicationOfWhichAPartIsMissingIsMadeAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, ended := newFakeNode(t), newDisk(), make(chan EndedCall, 10)
		start := func(opts ...option) *life {
			l := live(t, h, d, append(opts, func(c *Config) { c.OnCall = func(c EndedCall) { ended <- c } })...)
			l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, partly{h})
			l.SetPod(podWant("a", "v"))
			mounted(t, l, "a")
			return l
		}
		l := start()
		<-ended // of Stage
		if got := <-ended; got.Error != "" || got.Outcome != "" || got.Retry.Error != "1 files failed" {
			t.Errorf("got %+v", got)
		}
		time.Sleep(time.Hour)
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		l = start(sources("s")) // or pod a counts as gone until it is listed
		v, _ := l.Volume("d^v")
		if m := v.Volume.Mounts["a"]; m.Phase != state.Present || m.Failed != nil || m.GroupFailed != "1 files failed" {
			t.Errorf("record %+v", m)
		}
		if len(ended) > 0 {
			t.Errorf("called again: %+v", <-ended)
		}
	})
}
