package crash

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/drivertest"
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
	drivertest.Enter()
	dir, err := os.MkdirTemp("", "crash-bin-")
	if err == nil {
		program, all, err = build(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// tally is what the runs showed.
type tally struct {
	mu                      sync.Mutex
	kills                   map[string]int // by phase and place
	runs, converged, missed int
}

// TestKilledAtEveryPlaceItConverges first lets all that can happen to a node
// happen once, to learn which places each phase comes to, and then again, with
// a kill at another place in each phase, until there was one at every place.
func TestKilledAtEveryPlaceItConverges(t *testing.T) {
	hits := map[string][]string{}
	if *only != "" {
		phase, place, _ := strings.Cut(*only, "\t")
		hits[phase] = []string{place}
	} else if hits = discover(t); t.Failed() {
		return
	}
	longest := 0
	for _, places := range hits {
		longest = max(longest, len(places))
	}
	c := &tally{kills: map[string]int{}}
	t.Run("runs", func(t *testing.T) {
		slots := make(chan struct{}, *workers)
		for i := range longest {
			if !*every && *only == "" && i%12 != 0 {
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

// discover returns, by phase, the places that it comes to.
func discover(t *testing.T) map[string][]string {
	n := newNode(t)
	n.env = append(n.env, "CSI_VOLMGR_FAILPOINT_LOG="+n.path("hits"))
	n.live(nil)
	b, err := os.ReadFile(n.path("hits"))
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
	return hits
}

// run lives a node's life with a kill at one place in each phase.
func (c *tally) run(t *testing.T, at map[string]string) {
	n := newNode(t)
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
	for _, phase := range phases {
		killed := 0
		for _, place := range hits[phase] {
			reached[place] = true
			if c.kills[phase+"\t"+place] > 0 {
				killed++
				killedAt[place] = true
			}
		}
		total += killed
		t.Logf("%-8s killed at %d of the %d places that it comes to", phase, killed, len(hits[phase]))
	}
	rooms := map[string]int{}
	for place := range killedAt {
		room, _ := filepath.Split(strings.Fields(place)[0])
		rooms[room]++
	}
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		t.Logf("%-18s %d places", room, rooms[room])
	}
	t.Logf("failpoints: %d in the source, %d reached by this life, killed at %d; places x phases: %d", len(all), len(reached), len(killedAt), total)
	t.Logf("runs: %d, converged: %d, with leftovers or stuck: %d; kills that did not come (another order of things): %d", c.runs, c.converged, c.runs-c.converged, c.missed)
}
