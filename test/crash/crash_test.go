package crash

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/test/failpoint"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

var (
	every   = flag.Bool("every", false, "kill at every place, not at a few")
	only    = flag.String("place", "", "kill at this `phase<tab>place` alone")
	workers = flag.Int("workers", 3, "runs at once")
	seed    = flag.Uint64("seed", uint64(time.Now().UnixNano()), "which places are the sample, without -every")
)

// program is csi-volmgr with failpoints.
var program string

// all are the names of its failpoints.
var all []string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(harness.Main(m, func(dir string) (err error) {
		program, all, err = failpoint.Build(dir)
		return err
	}))
}

// life is a sequence of phases of a node, and the places that it reaches.
type life struct {
	make func(t *testing.T) *node
	// one is N if without -every one of N runs is made.
	one int
	// hits are the places by phase. It is nil until discover has run.
	hits map[string][]string
}

// Together the lives reach every place except those in testdata/unreached.txt.
var (
	kinds   = &life{make: newKinds, one: 12}
	driver  = &life{make: newDriver, one: 12}
	handed  = &life{make: newHanded, one: 24}
	cluster = &life{make: newCluster, one: 24}
	named   = &life{make: newNamed, one: 12}
	parked  = &life{make: newParked, one: 12}
)

// tally counts the results of the runs.
type tally struct {
	life                    *life
	mu                      sync.Mutex
	kills                   map[string]int // by phase and place
	runs, converged, missed int
}

// TestKilledAtEveryPlaceItConverges kills the daemon, which runs the driver itself.
// Faults: A055.
func TestKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, kinds) }

// TestDriverKilledAtEveryPlaceItConverges kills the driver, which is a process of its own.
// It dies during the daemon's calls, before and after their effects.
func TestDriverKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, driver) }

// TestHandedOverNodeKilledAtEveryPlaceItConverges kills the daemon and the commands of a
// node whose pods are in a directory. The node is handed to a kubelet and taken back, its
// leftovers are removed, and csi-volmgr is uninstalled.
func TestHandedOverNodeKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, handed) }

// TestClusterNodeKilledAtEveryPlaceItConverges kills the daemon of a node whose pods come
// from an API server.
func TestClusterNodeKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, cluster) }

// prove runs the life once without a kill, to learn which places each phase reaches. It
// then repeats the life with a kill at another place in each phase, until every place had
// its kill.
func prove(t *testing.T, l *life) {
	hits := map[string][]string{}
	if *only != "" {
		phase, place, _ := strings.Cut(*only, "\t")
		hits[phase] = []string{place}
	} else if hits = l.discover(t); t.Failed() {
		return
	}
	longest := 0
	for _, places := range hits {
		longest = max(longest, len(places))
	}
	// Another sample each time: in the long run every place has its kill.
	first := int(*seed % uint64(max(min(l.one, longest), 1)))
	if !*every && *only == "" {
		t.Logf("the sample is of -seed=%d", *seed)
	}
	c := &tally{life: l, kills: map[string]int{}}
	t.Run("runs", func(t *testing.T) {
		slots := make(chan struct{}, *workers)
		for i := range longest {
			if !*every && *only == "" && i%l.one != first {
				continue
			}
			at := map[string]string{}
			for phase, places := range hits {
				if i < len(places) {
					at[phase] = places[i]
				}
			}
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				c.run(t, at)
			})
		}
	})
	c.print(t, hits)
}

// discover returns, by phase, the places that a life reaches.
func (l *life) discover(t *testing.T) map[string][]string {
	if l.hits != nil {
		return l.hits
	}
	n := l.make(t)
	n.hits = n.Path("hits")
	n.live(nil)
	b, err := os.ReadFile(n.Path("hits"))
	if err != nil {
		t.Error(err)
	}
	hits := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		phase, place, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if phase = strings.TrimPrefix(phase, learn); !slices.Contains(hits[phase], place) {
			hits[phase] = append(hits[phase], place)
		}
	}
	if !t.Failed() {
		l.hits = hits
	}
	return hits
}

// run runs a node's life with a kill at one place in each phase.
func (c *tally) run(t *testing.T, at map[string]string) {
	n := c.life.make(t)
	killed := n.live(at)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	if !t.Failed() {
		c.converged++
	}
	for phase, place := range at {
		if killed[phase] {
			c.kills[phase+"\t"+place]++
		} else {
			c.missed++
		}
	}
}

func (c *tally) print(t *testing.T, hits map[string][]string) {
	reached, killedAt := map[string]bool{}, map[string]bool{}
	total := 0
	for _, phase := range slices.Sorted(maps.Keys(hits)) {
		killed := 0
		for _, place := range hits[phase] {
			reached[place] = true
			if c.kills[phase+"\t"+place] > 0 {
				killed++
				killedAt[place] = true
			}
		}
		total += killed
		t.Logf("%-10s killed at %d of the %d places that it comes to", phase, killed, len(hits[phase]))
	}
	t.Logf("places that this life comes to: %d; killed at: %d; places x phases: %d", len(reached), len(killedAt), total)
	t.Logf("runs: %d, converged: %d, leftovers: %d; kills that did not come (another order of things): %d", c.runs, c.converged, c.runs-c.converged, c.missed)
}
