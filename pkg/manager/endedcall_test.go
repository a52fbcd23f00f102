package manager

import (
	"errors"
	"testing"
	"testing/synctest"
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
