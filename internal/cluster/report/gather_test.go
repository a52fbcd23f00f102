package report_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volumes arrive one after the other, as at the start of a node with many. The reporter does not write a long list
// for each of them. Each volume is listed, and may be mounted, within a second; removals work likewise. It writes a
// short list at once, and so a long one that another program has overwritten.
//
// Faults: A228.
func TestALongListIsNotWrittenForEachVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const volumes, apart = 1000, 20 * time.Millisecond
		var names []string
		var ids []state.VolumeID
		for i := range volumes {
			names = append(names, fmt.Sprintf("d^%04d", i))
			ids = append(ids, state.VolumeID(names[i]))
		}
		w := using(t)
		w.change(attached(names...))
		w.seeNode()
		writes := func() (n int) {
			for _, r := range w.server.Took() {
				if strings.HasPrefix(r, "patch nodes/status") {
					n++
				}
			}
			return n
		}
		writes()
		for i := range 30 {
			w.use(ids[:i+1]...)
			w.want("a short list", strings.Join(names[:i+1], " "), ids[:i+1]...)
		}
		if n := writes(); n != 30 {
			t.Errorf("%d writes of short lists, want 30", n)
		}
		for i := 30; i < volumes; i++ {
			w.use(ids[:i+1]...)
			time.Sleep(apart)
		}
		time.Sleep(time.Second)
		w.want("all", strings.Join(names, " "), ids...)
		if n := writes(); n > 150 {
			t.Errorf("%d writes for %d volumes", n, volumes)
		}
		w.use(ids[1:]...)
		w.want("without the first", strings.Join(names[1:], " "), ids[1:]...)
		w.change(func(s *corev1.NodeStatus) { s.VolumesInUse = nil })
		w.seeNode()
		w.want("overwritten a moment after it was written", strings.Join(names[1:], " "), ids[1:]...)
		time.Sleep(time.Hour) // the reporter has forgotten the other program
		w.use(ids...)
		writes()
		for i := range volumes {
			w.use(ids[i+1:]...)
			time.Sleep(apart)
		}
		time.Sleep(time.Second)
		w.want("none", "")
		if n := writes(); n > 250 {
			t.Errorf("%d writes for %d volumes that go", n, volumes)
		}
	})
}
