package report

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The model of the handshake has two nodes, one volume, the API server, Kubernetes' attach-detach controller and
// attacher, and the program's own decisions (inUse.next, plan.Next, plan.AttachedAs, plan.HoldUntilListed). Each acts
// at any moment. Reads are late, writes are applied late or never, processes crash. The walk visits every reachable
// state and checks:
//
//   - a volume is not detached from a node on which it may be mounted;
//   - it is not mounted on two nodes, nor on a node to which it is not attached, nor with the publish
//     context of an earlier attachment: each attachment has a context of its own;
//   - from each state the wishes can be fulfilled without a fault or a change of wishes.
//
// The model leaves out the controller's forced detachment after six minutes, and a DELETE of a VolumeAttachment
// that outlives the controller's process. No node can prevent either.

// budget is how much more may go wrong on one path.
type budget struct {
	toggles                                                                [2]uint8 // changes of the pod on each node
	agentCrashes, controllerCrashes, lost, beats, erased, flips, lateReads uint8
}

// scenario is a budget that is walked on its own: one walk with all of them would be too large.
type scenario struct {
	budget
	// large: it has at least a million states, and only `make test-handshake` walks it.
	large bool
}

func scenarios() map[string]scenario {
	return map[string]scenario{
		moves:         {budget: budget{toggles: [2]uint8{2, 1}}},
		replaced:      {budget: budget{toggles: [2]uint8{4, 0}, beats: 1}},
		erased:        {budget: budget{toggles: [2]uint8{1, 0}, erased: 1, beats: 1}},
		flips:         {budget: budget{toggles: [2]uint8{2, 0}, flips: 1}},
		lateRead:      {budget: budget{toggles: [2]uint8{3, 0}, lateReads: 1}},
		controlFails:  {budget: budget{toggles: [2]uint8{3, 0}, controllerCrashes: 1}},
		late:          {budget: budget{toggles: [2]uint8{3, 0}, lost: 2}, large: true},
		agentFails:    {budget: budget{toggles: [2]uint8{3, 0}, agentCrashes: 1, lost: 1}, large: true},
		movesAndFails: {budget: budget{toggles: [2]uint8{2, 1}, agentCrashes: 1}, large: true},
	}
}

const (
	moves         = "the volume moves"
	replaced      = "a pod is replaced"
	erased        = "another program erases the list"
	flips         = "no attachment is needed any more"
	lateRead      = "a read of the attachment is late"
	controlFails  = "the controller crashes"
	late          = "writes are late"
	agentFails    = "the daemon crashes"
	movesAndFails = "the volume moves and a daemon crashes"
)

// full reports whether to walk every scenario and every bug, which takes a minute or two.
func full() bool { return os.Getenv("EXPLORE") == "full" }

// walk visits every state reachable from the first one. It returns the number of states, and the first broken rule
// with the way to it.
func walk(r *rules, left budget) (states int, broken string) {
	type origin struct {
		from int32
		by   move
	}
	first := start(left)
	index, all, came := map[system]int32{first: 0}, []system{first}, []origin{{-1, move{what: "start", node: -1}}}
	var onward [][]int32 // for each state, those that follow without a fault
	path := func(i int32) string {
		var steps []string
		for ; i >= 0; i = came[i].from {
			steps = append(steps, came[i].by.String())
		}
		slices.Reverse(steps)
		return strings.Join(steps, "\n  ")
	}
	for i := int32(0); int(i) < len(all); i++ {
		var next []int32
		for _, m := range r.moves(all[i]) {
			if m.breach != "" {
				return len(all), fmt.Sprintf("%s, by:\n  %s\n  %s", m.breach, path(i), m)
			}
			to := m.to.canonical()
			j, known := index[to]
			if !known {
				j = int32(len(all)) //nolint:gosec // far fewer
				index[to], all, came = j, append(all, to), append(came, origin{i, move{what: m.what, node: m.node}})
			}
			if !m.fault {
				next = append(next, j)
			}
		}
		onward = append(onward, next)
	}
	if i := stuck(all, onward); i >= 0 {
		return len(all), fmt.Sprintf("the wishes are never fulfilled from %+v, by:\n  %s", all[i], path(i))
	}
	return len(all), ""
}

// stuck returns a state from which no fulfilled state can be reached, or -1.
func stuck(all []system, onward [][]int32) int32 {
	back := make([][]int32, len(all))
	var queue []int32
	reaches := make([]bool, len(all))
	for i := range all {
		for _, j := range onward[i] {
			back[j] = append(back[j], int32(i)) //nolint:gosec // as above
		}
		if all[i].fulfilled() {
			reaches[i] = true
			queue = append(queue, int32(i)) //nolint:gosec // as above
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, i := range back[queue[0]] {
			if !reaches[i] {
				reaches[i] = true
				queue = append(queue, i)
			}
		}
	}
	return int32(slices.Index(reaches, false)) //nolint:gosec // as above
}

// Faults: A180, A181, A182.
func TestEveryStateOfTheHandshake(t *testing.T) {
	for name, of := range scenarios() {
		if raced && name != erased || of.large && !full() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, broken := walk(program(), of.budget)
			if broken != "" {
				t.Fatal(broken)
			}
			if states < 5000 {
				t.Errorf("only %d states: the walk does not go far enough to prove anything", states)
			}
			t.Logf("%d states", states)
		})
	}
}

// Each rule is needed: without it, the walk finds a state that breaks a property.
func TestEveryBugOfTheHandshakeIsFound(t *testing.T) {
	for _, b := range bugs() {
		if raced || !full() && scenarios()[b.found].large {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := program()
			b.plant(r)
			states, broken := walk(r, scenarios()[b.found].budget)
			if broken == "" {
				t.Fatalf("not found in %d states", states)
			}
			rule, _, _ := strings.Cut(broken, " by:")
			rule, _, _ = strings.Cut(rule, " from {")
			t.Logf("%s: %s, after %d states", b.found, strings.TrimSuffix(rule, ","), states)
		})
	}
}
