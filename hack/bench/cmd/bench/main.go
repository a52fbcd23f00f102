// bench compares volume managers on the same work and the same driver. For
// each cell of a suite and each repetition it starts a fresh benchdriver, runs
// the bare calls (directbench) at several concurrencies and then each system
// under test, with the machine quiet, and writes one JSON line for each run, a
// table, and which of the goals are reached.
//
// A system under test is a program that takes the flags of internal/harness
// and appends one JSON line (benchdef.Result) to --out.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

var (
	bin         = flag.String("bin", "bin", "directory of the programs")
	work        = flag.String("work", filepath.Join(os.TempDir(), "csi-volmgr-bench"), "scratch directory, on the disk that the cells on disk use")
	outFile     = flag.String("out", "results.jsonl", "results, appended")
	suite       = flag.String("suite", "quick", "comma list of suites; see README.md")
	systems     = flag.String("systems", "volmgr=volmgrbench,daemon=volmgrbench --via=daemon --program=@csi-volmgr,kubelet=kubeletbench", "comma list of name=program and arguments; =@x means x under --bin")
	reps        = flag.Int("reps", 5, "repetitions of each cell")
	kubeletReps = flag.Int("kubelet-reps", 1<<30, "repetitions in which the kubelet takes part, the first ones")
	kubeletPods = flag.Int("kubelet-pods", 1<<30, "the most pods with which the kubelet takes part")
	conc        = flag.String("direct-concurrency", "1,8,32,64", "concurrencies of the bare calls")
	maxNoise    = flag.Float64("max-noise", 10, "repeat a run when other work took more than this % of the machine")
	retries     = flag.Int("retries", 2, "how often to repeat a noisy run (the quietest counts)")
	quietWait   = flag.Duration("quiet-wait", 30*time.Second, "how long to wait for a quiet machine before a run")
	firstRep    = flag.Int("first-rep", 1, "number of the first repetition")
	only        = flag.String("only", "", "run only cells whose name contains this")
	tabNoise    = flag.Float64("table-noise", 25, "leave runs with more noise than this % out of the tables, where a cell has quieter ones")
	tableOnly   = flag.String("table", "", "print the tables of this results file and exit")
)

func main() {
	log.SetFlags(log.Ltime)
	flag.Parse()
	if *tableOnly != "" {
		report(*tableOnly)
		return
	}
	all, err := cells(*suite)
	if err != nil {
		log.Fatal(err)
	}
	if err := mountAreas(); err != nil {
		log.Fatal(err)
	}
	for rep := *firstRep; rep < *firstRep+*reps; rep++ {
		for _, c := range all {
			if *only == "" || strings.Contains(c.name(), *only) {
				runCell(c, rep)
			}
		}
	}
	_, backing := area("disk")
	dir, _ := area("disk")
	_ = os.RemoveAll(filepath.Join(dir, "cell"))
	_ = os.RemoveAll(backing)
	report(*outFile)
}

func report(path string) {
	l := load(path)
	goals(quietest(l), succeeded(l))
	table(l)
}

// runCell runs everything on one cell; the order rotates with each repetition.
func runCell(c cell, rep int) {
	log.Printf("rep %d %s", rep, c.name())
	e := setup(c)
	defer e.close()
	if !c.noDirect { // a warm-up that does not count: the driver's backing directories, the page cache
		args := append(e.label(0), "--root="+filepath.Join(e.dir, "warm"), "--socket="+e.drvSock, "--concurrency=8")
		if _, err := e.once("directbench", args...); err != nil {
			log.Printf("  warm-up: %v", err)
		}
	}
	blocks := [][]func() (*benchdef.Result, error){e.direct(rep)}
	for s := range strings.SplitSeq(*systems, ",") {
		name, prog, ok := strings.Cut(s, "=")
		if !ok {
			log.Fatalf("--systems: %q", s)
		}
		if !takesPart(c, name, rep-*firstRep) {
			continue
		}
		blocks = append(blocks, []func() (*benchdef.Result, error){e.system(name, prog, rep)})
	}
	for i := range blocks {
		for _, run := range blocks[(i+rep)%len(blocks)] {
			keep(quietestOf(run))
		}
	}
}

// takesPart reports whether a system does a cell's work in a repetition; the first one is 0.
func takesPart(c cell, name string, rep int) bool {
	if c.only != "" && !slices.Contains(strings.Split(c.only, ","), name) {
		return false
	}
	return name != "kubelet" || rep < *kubeletReps && c.pods <= *kubeletPods && (rep == 0 || !c.slowKubelet)
}

func keep(r *benchdef.Result, err error) {
	if r != nil {
		if err := r.Emit(*outFile); err != nil {
			log.Fatal(err)
		}
		log.Printf("  %-8s c=%-3d p50 %9.1f p99 %9.1f total %9.1f unmount %9.1f cpu %7.3f noise %4.1f%%",
			r.System, r.Conc, r.MountP50, r.MountP99, r.TotalMs, r.UnstageTotalMs, r.CPU, r.NoisePct)
	}
	if err != nil {
		log.Printf("  %v", err)
	}
}

// quietestOf repeats a run while it is noisy, and returns the quietest.
func quietestOf(run func() (*benchdef.Result, error)) (best *benchdef.Result, bestErr error) {
	for range *retries + 1 {
		r, err := run()
		if best == nil || r != nil && r.NoisePct < best.NoisePct {
			best, bestErr = r, err
		}
		if best != nil && best.NoisePct <= *maxNoise {
			break
		}
	}
	return best, bestErr
}

func load(p string) (l []benchdef.Result) {
	f, err := os.Open(p)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var r benchdef.Result
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			log.Fatal(fmt.Errorf("%s: %w", p, err))
		}
		l = append(l, r)
	}
	return l
}
