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

	"github.com/csi-volmgr/csi-volmgr/test/failpoint"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

var (
	every   = flag.Bool("every", false, "kill at every place, not at a few")
	only    = flag.String("place", "", "kill at this `phase<tab>place` alone")
	workers = flag.Int("workers", 3, "runs at once")
)

// program is csi-volmgr with failpoints.
var program string

// all are its places.
var all []string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(harness.Main(m, func(dir string) (err error) {
		program, all, err = failpoint.Build(dir)
		return err
	}))
}

// life is what happens to a node, and which places it comes to.
type life struct {
	make func(t *testing.T) *node
	// one in so many runs is made where not -every is said.
	one int
	// hits are the places by phase, once they are known.
	hits map[string][]string
}

// The lives. Together they come to every place but those that testdata/unreached.txt lists.
var (
	kinds   = &life{make: newKinds, one: 12}
	driver  = &life{make: newDriver, one: 12}
	handed  = &life{make: newHanded, one: 24}
	cluster = &life{make: newCluster, one: 24}
	named   = &life{make: newNamed, one: 12}
)

// tally is what the runs showed.
type tally struct {
	life                    *life
	mu                      sync.Mutex
	kills                   map[string]int // by phase and place
	runs, converged, missed int
}

// TestKilledAtEveryPlaceItConverges: the daemon, which has the driver in it.
// Faults: A055.
func TestKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, kinds) }

// TestDriverKilledAtEveryPlaceItConverges: the driver is a process of its own,
// and dies in the middle of the daemon's calls, before and after their effects.
func TestDriverKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, driver) }

// TestHandedOverNodeKilledAtEveryPlaceItConverges: a node whose pods are in a
// directory is handed to a kubelet and taken back, cleared of leftovers and
// uninstalled. The daemon dies, and so do the commands.
func TestHandedOverNodeKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, handed) }

// TestClusterNodeKilledAtEveryPlaceItConverges: the pods come from an API server.
func TestClusterNodeKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, cluster) }

// prove first lets all that can happen to a node happen once, to learn which
// places each phase comes to, and then again, with a kill at another place in
// each phase, until there was one at every place.
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
	c := &tally{life: l, kills: map[string]int{}}
	t.Run("runs", func(t *testing.T) {
		slots := make(chan struct{}, *workers)
		for i := range longest {
			if !*every && *only == "" && i%l.one != 0 {
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

// discover returns, by phase, the places that a life comes to.
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

// run lives a node's life with a kill at one place in each phase.
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
