package manager

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// For every order of arrival of up to seven volumes of four pods in two namespaces: each volume comes once, those of a
// pod come in their order, no pod that waits is passed by twice by another of its namespace, and no namespace by another.
func TestPodsAndNamespacesTakeTurns(t *testing.T) {
	pods := []state.Pod{{Namespace: "a", UID: "a1"}, {Namespace: "a", UID: "a2"}, {Namespace: "b", UID: "b1"}, {Namespace: "b", UID: "b2"}}
	for volumes := range 8 {
		for order := range 1 << (2 * volumes) {
			var q blockedQueue
			waits := map[state.PodUID]int{}
			owner := map[state.VolumeID]state.Pod{}
			for i := range volumes {
				pod := pods[order>>(2*i)&3]
				id := state.VolumeID(fmt.Sprint(i))
				q.push(pod, blockedKey{id: id, arrival: uint64(i + 1)})
				waits[pod.UID]++
				owner[id] = pod
			}
			passed := map[[2]string]int{} // how often the second came since the first, which waits, came
			last := map[state.PodUID]uint64{}
			for range volumes {
				b, ok := q.head()
				if !ok {
					t.Fatalf("order %d: volumes are lost", order)
				}
				q.pop()
				of := owner[b.id]
				waits[of.UID]--
				if b.arrival <= last[of.UID] {
					t.Fatalf("order %d: volumes of %s out of order", order, of.UID)
				}
				last[of.UID] = b.arrival
				for _, other := range pods {
					inOther := 0
					for _, p := range pods {
						if p.Namespace == other.Namespace {
							inOther += waits[p.UID]
						}
					}
					pair := [2]string{string(other.UID), string(of.UID)}
					space := [2]string{"namespace " + other.Namespace, "namespace " + of.Namespace}
					switch {
					case other.UID == of.UID:
						for _, p := range pods {
							passed[[2]string{string(of.UID), string(p.UID)}] = 0
							if p.Namespace != of.Namespace {
								passed[[2]string{"namespace " + of.Namespace, "namespace " + p.Namespace}] = 0
							}
						}
					case other.Namespace == of.Namespace && waits[other.UID] > 0:
						if passed[pair]++; passed[pair] > 1 {
							t.Fatalf("order %d: %s passes %s twice", order, of.UID, other.UID)
						}
					case other.Namespace != of.Namespace && inOther > 0 && other.UID[1] == '1':
						if passed[space]++; passed[space] > 1 {
							t.Fatalf("order %d: namespace %s passes %s twice", order, of.Namespace, other.Namespace)
						}
					}
				}
			}
			if !q.empty() || len(q.namespaces) != 0 {
				t.Fatalf("order %d: left over: %+v", order, q)
			}
		}
	}
}

// A pod with many volumes delays the pods that come after it by the calls in flight and a turn, not by its volumes;
// also when all of them leave.
func TestAPodWithManyVolumesStarvesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk(), func(c *Config) { c.Limits = plan.Limits{Node: 4, Driver: 4, Reserved: 1} })
		l.up(h)
		h.fails(func(string) fault { return fault{takes: time.Second} })
		const many, others, calls = 500, 5, 2 // a Stage and a Publish
		var names []string
		for i := range many {
			names = append(names, fmt.Sprintf("v%03d", i))
		}
		l.SetPod(podWant("large", names...))
		synctest.Wait()
		began := time.Now()
		for i := range others {
			l.SetPod(podWant(fmt.Sprintf("small%d", i), fmt.Sprintf("w%d", i)))
		}
		for i := range others {
			mounted(t, l, fmt.Sprintf("small%d", i))
		}
		if got, most := time.Since(began), 2*others*calls*time.Second; got > most {
			t.Errorf("the small pods were mounted after %v, want %v at most", got, most)
		}
		mounted(t, l, "large")
		l.RemovePod("large")
		synctest.Wait()
		began = time.Now()
		for i := range others {
			l.RemovePod(state.PodUID(fmt.Sprintf("small%d", i)))
		}
		for i := range others {
			if err := l.WaitForUnmount(t.Context(), state.PodUID(fmt.Sprintf("small%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		if got, most := time.Since(began), 2*others*calls*time.Second; got > most {
			t.Errorf("the small pods were unmounted after %v, want %v at most", got, most)
		}
		l.RemovePod("large")
	})
}
