package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// crowd is a pod that asks for very many volumes of the driver of v4, which small pods have too.
const crowd = "crowd"

// most is how many volumes the crowd has at the most.
const most = 40

// inTurn is how many calls of the crowd may begin while a volume of a small pod waits for a slot of the same driver. A
// volume whose turn it is may find its slot taken, and waits for its next turn.
const inTurn = 8

// crowded are the names of the crowd's volumes.
var crowded = func() (names []string) {
	for i := range most {
		names = append(names, fmt.Sprintf("m%d", i))
	}
	return names
}()

// everyPod are the pods, and the crowd.
var everyPod = append(slices.Clone(pods), crowd)

// mayHave reports whether a pod may have a volume.
func mayHave(uid, name string) bool { return volumes[name].crowded == (uid == crowd) }

// crowds makes the crowd ask for n volumes; mu is held.
func (w *world) crowds(n int) {
	p := pod{vols: map[string]wish{}}
	for _, name := range crowded[:min(n, most)] {
		p.vols[name] = wish{}
	}
	w.wishes[crowd] = p
	w.tell(crowd)
}

// namespaceOf returns a pod's namespace: in one world of two the crowd has its own.
func (w *world) namespaceOf(uid string) string {
	if uid == crowd && w.dice("namespace")%2 == 0 {
		return crowd
	}
	return "n"
}

// waiting is a volume of a small pod that waits for a slot.
type waiting struct {
	id      state.VolumeID
	pod     state.PodUID
	removal bool
}

// turns checks that no small pod waits for a slot while the crowd has more than its turns; mu is held.
func (j *judge) turns(l *life, o op) {
	if o.pod != crowd {
		return
	}
	if j.turnsOf != l { // turns begin anew with each life
		j.turnsOf, j.passed = l, nil
	}
	passed := map[waiting]int{}
	for _, v := range l.m.Volumes() {
		h := v.Held
		of := waiting{v.Volume.ID, h.Pod, h.Step.Removes()}
		if h.Code != plan.Slot || h.Pod == crowd || v.Volume.Spec.Driver != o.v.Spec.Driver || of.removal != removes(o.verb) {
			continue
		}
		passed[of] = j.passed[of] + 1
		if passed[of] > inTurn {
			j.w.breach("fair turns: %s of pod %s waits for a slot, and the crowd began %d calls meanwhile", of.id, of.pod, passed[of])
		}
	}
	for of, n := range j.passed {
		if of.removal != removes(o.verb) {
			passed[of] = n
		}
	}
	j.passed = passed
}

// crowding returns steps of the crowd and of small pods beside it.
func crowding(r *rand.Rand) []string {
	small := pods[r.IntN(len(pods))]
	switch r.IntN(4) {
	case 0:
		return []string{"remove " + small, "wait 100ms", fmt.Sprintf("crowd %d", most/2+r.IntN(most/2)), "pod " + small + " v4"}
	case 1:
		return []string{"remove " + crowd, "remove " + small}
	case 2:
		return []string{"stop " + crowd}
	default:
		return []string{fmt.Sprintf("crowd %d", 1+r.IntN(most)), "wait " + []string{"1ms", "100ms", "3s"}[r.IntN(3)]}
	}
}

// unfair are mistakes about whose turn it is.
var unfair = []planting{
	{"a-pod-has-a-turn-for-each-of-its-volumes", "crowds", []bug{{
		"a pod keeps its turn", "pkg/manager/turns.go",
		"n.order = append(n.order[1:], uid)", "n.order[0] = uid",
	}}},
	{"a-namespace-has-a-turn-for-each-of-its-volumes", "crowds", []bug{{
		"a namespace keeps its turn", "pkg/manager/turns.go",
		"q.order = append(q.order[1:], name)", "q.order[0] = name",
	}}},
}
