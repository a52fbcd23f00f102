// Command shares prints how much of the CPU profiles that volmgrbench wrote (--profile-dir)
// belongs to each part of csi-volmgr, as the table of docs/performance.md.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// part is a line of the table: the samples with a function on their stack whose name
// contains one of has, except those of an earlier part.
type part struct {
	name string
	has  []string
}

const other = "the rest"

// parts begins with the work of the Go runtime, which can hit any function.
func parts() []part {
	return []part{
		{"garbage collection", []string{"runtime.gc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.wbBuf", "runtime.markroot", "runtime.scan", "runtime.(*gcWork)", "runtime.deductAssist", "runtime.(*mspan).sweep", "runtime.(*sweepLocked)"}},
		{"stacks that grow", []string{"runtime.newstack", "runtime.copystack", "runtime.morestack"}},
		{"the scheduler", []string{"runtime.schedule", "runtime.findRunnable", "runtime.park_m", "runtime.sysmon", "runtime.goexit0", "runtime.mstart"}},
		{"the mount table, looked at while it changes", []string{"internal/host/mount.(*Tracker)", "internal/wire.(*Node).runDrift"}},
		{"where else the volume is mounted, before each unstage", []string{"internal/host/mount.(*Kernel).Elsewhere", "internal/host/mount.(*Kernel).same"}},
		{"what a pod's subpaths and a kubelet may have left, before each unmount", []string{"internal/wire.(*Node).beforeUnpublish", "internal/kinds/subpath."}},
		{"directories: made for the driver, removed after it", []string{"pkg/csiclient.(*dirs)", "internal/host/mount.(*Kernel).Remove", "internal/host/mount.(*Kernel).remove", "pkg/csiclient.(*Driver).prune"}},
		{"looks at the kernel before and after calls", []string{"internal/host/mount."}},
		{"built-in kinds", []string{"internal/kinds/"}},
		{"gRPC, and csiclient around it", []string{"google.golang.org/grpc", "pkg/csiclient."}},
		{"the journal: records, transactions", []string{"go.etcd.io/bbolt", "internal/journal.(*Bolt)", "internal/journal.recordChange", "internal/journal.decodeAll", "internal/journal.OpenBolt"}},
		{"`MountPod` and `UnmountPod`: objects, resolving, the wait", []string{"internal/wire.(*Node).MountPod", "internal/wire.(*Node).UnmountPod", "internal/wants/source", "internal/wants/resolve."}},
		{"the loop: events, planning, what others see of it", []string{"pkg/manager"}},
		{"the harness", []string{"hack/bench/"}},
	}
}

func main() {
	log.SetFlags(0)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "shares DIR: prints the table of its cpu-PHASE-*.pb.gz")
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func run(dir string) error {
	var phases []phase
	for _, name := range []string{"mount", "unmount", "restart"} {
		files, err := filepath.Glob(filepath.Join(dir, "cpu-"+name+"-*.pb.gz"))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			continue
		}
		p := phase{name: name, of: map[string]int64{}}
		for _, file := range files {
			if err := p.add(file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		phases = append(phases, p)
	}
	if len(phases) == 0 {
		return fmt.Errorf("%s: no cpu-mount-*.pb.gz, cpu-unmount-*.pb.gz or cpu-restart-*.pb.gz", dir)
	}
	table(phases)
	return nil
}

// phase has the samples of one phase's profiles.
type phase struct {
	name string
	of   map[string]int64 // nanoseconds, by part
	all  int64
}

func (p *phase) add(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	prof, err := profile.Parse(f)
	if err != nil {
		return err
	}
	cpu := slices.IndexFunc(prof.SampleType, func(t *profile.ValueType) bool { return t.Type == "cpu" && t.Unit == "nanoseconds" })
	if cpu < 0 {
		return fmt.Errorf("no CPU profile")
	}
	for _, s := range prof.Sample {
		p.of[partOf(s)] += s.Value[cpu]
		p.all += s.Value[cpu]
	}
	return nil
}

func partOf(s *profile.Sample) string {
	for _, p := range parts() {
		for _, loc := range s.Location {
			for _, line := range loc.Line {
				if line.Function != nil && slices.ContainsFunc(p.has, func(has string) bool { return strings.Contains(line.Function.Name, has) }) {
					return p.name
				}
			}
		}
	}
	return other
}

// table writes the phases as Markdown, sorted by the first one, largest part first.
func table(phases []phase) {
	names := []string{other}
	for _, p := range parts() {
		names = append(names, p.name)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(phases[0].of[b], phases[0].of[a]) })
	head, rule, sum := "| part |", "| --- |", "| samples |"
	for _, p := range phases {
		head, rule = head+" "+p.name+" |", rule+" --- |"
		sum += fmt.Sprintf(" %.1f s |", time.Duration(p.all).Seconds())
	}
	fmt.Println(head)
	fmt.Println(rule)
	for _, name := range names {
		row, some := "| "+name+" |", false
		for _, p := range phases {
			share := 100 * float64(p.of[name]) / float64(max(1, p.all))
			some = some || share >= 0.5
			row += fmt.Sprintf(" %.0f %% |", share)
		}
		if some {
			fmt.Println(row)
		}
	}
	fmt.Println(sum)
}
