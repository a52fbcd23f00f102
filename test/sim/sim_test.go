package sim

import (
	"flag"
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var (
	oneSeed   = flag.Int64("seed", -1, "run this seed alone, and print its script")
	seeds     = flag.Int64("seeds", 300, "how many seeds to run")
	firstSeed = flag.Int64("first-seed", 1, "the seed to begin with")
	ofActor   = flag.String("actor", "", "run only the seeds whose scripts have this actor: authors, schedules, shares, lost, groups, crowds")
	noShrink  = flag.Bool("no-shrink", false, "print a failing script as it is")
)

// tally counts what the simulation tried.
type tally struct {
	calls, faults, crashes, groups  map[string]int
	commits, looks, restarts, lives int
	states                          map[uint64]struct{}
	hash                            maphash.Seed
}

func newTally(hash maphash.Seed) *tally {
	return &tally{calls: map[string]int{}, faults: map[string]int{}, crashes: map[string]int{}, groups: map[string]int{}, states: map[uint64]struct{}{}, hash: hash}
}

// saw counts the states of a volume: what the manager knows, what the journal says, what is wanted
// and what is in progress.
func (c *tally) saw(v manager.VolumeStatus, durable state.Volume) {
	var h maphash.Hash
	h.SetSeed(c.hash)
	facts := func(v state.Volume) {
		retry := func(r state.Retry) byte {
			return byte(min(r.Attempts, 2))
		}
		h.Write([]byte{byte(v.Attach.Phase), retry(v.Attach.Retry()), byte(v.Stage.Phase), retry(v.Stage.Retry()), retry(v.ExpandFailed.Value()), byte(v.SizeBytes)})
		for _, p := range pods {
			m := v.Mounts[state.PodUID(p)]
			h.Write([]byte{byte(m.Phase), retry(m.Retry())})
			h.WriteString(m.Revision)
		}
	}
	facts(v.Volume)
	facts(durable)
	h.WriteString(string(v.Volume.Spec.Driver))
	fmt.Fprint(&h, v.Wanted, v.Call.Kind, v.Call.Pod, v.Held.Step)
	c.states[h.Sum64()] = struct{}{}
}

func (c *tally) add(o *tally) {
	for k, n := range o.calls {
		c.calls[k] += n
	}
	for k, n := range o.faults {
		c.faults[k] += n
	}
	for k, n := range o.crashes {
		c.crashes[k] += n
	}
	for k, n := range o.groups {
		c.groups[k] += n
	}
	c.commits, c.looks, c.restarts, c.lives = c.commits+o.commits, c.looks+o.looks, c.restarts+o.restarts, c.lives+o.lives
	maps.Copy(c.states, o.states)
}

func (c *tally) String() string {
	list := func(m map[string]int) string {
		sum, parts := 0, []string{}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			sum += m[k]
			parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
		}
		return fmt.Sprintf("%d (%s)", sum, strings.Join(parts, ", "))
	}
	return fmt.Sprintf("operations: %s\ncommits: %d, looks: %d, restarts: %d\nfaults: %s\ncrashes: %s\nowners, schedules, group snapshots: %s\nstates of a volume covered: %d",
		list(c.calls), c.commits, c.looks, c.restarts, list(c.faults), list(c.crashes), list(c.groups), len(c.states))
}

// failure is a seed that broke a rule.
type failure struct {
	seed   int64
	broken string
}

// TestSeeds runs -seeds seeds from -first-seed on, or only -seed.
//
// Faults: A015.
func TestSeeds(t *testing.T) {
	if *oneSeed >= 0 {
		lines := script(uint64(*oneSeed))
		t.Logf("script of seed %d:\n%s", *oneSeed, strings.Join(lines, "\n"))
		if broken := run(t, lines, newTally(maphash.MakeSeed())); broken != "" {
			t.Error(explain(t, failure{*oneSeed, broken}))
		}
		return
	}
	var next atomic.Int64
	next.Store(*firstSeed)
	var mu sync.Mutex
	hash := maphash.MakeSeed()
	sum := newTally(hash)
	var failures []failure
	t.Run("workers", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for {
					seed := next.Add(1) - 1
					mu.Lock()
					stop := seed >= *firstSeed+*seeds || len(failures) > 0
					mu.Unlock()
					if stop {
						return
					}
					lines := script(uint64(seed))
					if *ofActor != "" && !strings.Contains(lines[0], " "+*ofActor+"=true") {
						continue
					}
					count := newTally(hash)
					broken := run(t, lines, count)
					mu.Lock()
					sum.add(count)
					if broken != "" {
						failures = append(failures, failure{seed, broken})
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("seeds %d to %d\n%v", *firstSeed, min(next.Load(), *firstSeed+*seeds)-1, sum)
	slices.SortFunc(failures, func(a, b failure) int { return int(a.seed - b.seed) })
	if len(failures) > 0 {
		t.Error(explain(t, failures[0]))
	}
}

func explain(t *testing.T, f failure) string {
	lines := script(uint64(f.seed))
	if !*noShrink {
		lines, f.broken = shrink(t, lines, f.broken)
	}
	return fmt.Sprintf("seed %d: %s\n\nscript (keep it in test/sim/testdata/<name>.txt, run it by -run TestScripts/<name>):\n%s\n\nreplay: go test ./test/sim -run TestSeeds -seed %d -v",
		f.seed, f.broken, strings.Join(lines, "\n"), f.seed)
}

// shrink removes the steps that a script does not need to break a rule.
func shrink(t *testing.T, lines []string, broken string) ([]string, string) {
	try := func(lines []string) string {
		for range 2 { // the order of simultaneous events is not in the script
			if b := run(t, lines, newTally(maphash.MakeSeed())); b != "" {
				return b
			}
		}
		return ""
	}
	for size := len(lines) / 2; size > 0; {
		smaller := false
		for i := 1; i+size <= len(lines); {
			shorter := slices.Concat(lines[:i], lines[i+size:])
			if b := try(shorter); b != "" {
				lines, broken, smaller = shorter, b, true
			} else {
				i += size
			}
		}
		if size > 1 || !smaller {
			size /= 2
		}
	}
	return lines, broken
}

// TestScripts runs scripts that once broke a rule.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for line := range strings.Lines(string(b)) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					lines = append(lines, line)
				}
			}
			for range 5 {
				if broken := run(t, lines, newTally(maphash.MakeSeed())); broken != "" {
					t.Fatal(broken)
				}
			}
		})
	}
}
