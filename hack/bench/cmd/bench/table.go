package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

func num(f float64) string {
	switch {
	case f == 0 || math.IsNaN(f):
		return "-"
	case math.Abs(f) >= 100:
		return fmt.Sprintf("%.0f", f)
	case math.Abs(f) >= 10:
		return fmt.Sprintf("%.1f", f)
	case math.Abs(f) < 0.01:
		return fmt.Sprintf("%.4f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// label returns the name of a cell for people.
func label(r benchdef.Result) string {
	s := fmt.Sprintf("%d", r.Pods)
	if r.Volumes != 1 {
		s += fmt.Sprintf(" x %d", r.Volumes)
	}
	for _, more := range []struct {
		on   bool
		text string
	}{
		{r.Mode != "bind", r.Mode},
		{r.LatencyMs > 0, fmt.Sprintf("%g ms a call", r.LatencyMs)},
		{r.FS == "disk", "on disk"},
		{r.Variant != "", r.Variant},
	} {
		if more.on {
			s += ", " + more.text
		}
	}
	return s
}

// column is a column of a table of runs.
type column struct {
	head  string
	value metric
	// ratio: as a multiple of the bare calls' number.
	ratio bool
}

var (
	mountColumns = []column{
		{"p50 ms", mountP50, false},
		{"p99 ms", mountP99, false},
		{"all ms", total, false},
		{"x p50", mountP50, true},
		{"x p99", mountP99, true},
		{"x all", total, true},
		{"unm p50 ms", func(r benchdef.Result) float64 { return r.UnmountP50 }, false},
		{"unstaged ms", unstaged, false},
		{"x unstaged", unstaged, true},
		{"noise %", func(r benchdef.Result) float64 { return r.NoisePct }, false},
	}
	costColumns = []column{
		{"CPU µs a volume", perVolume(cpu), false},
		{"x", cpu, true},
		{"mounting", perVolume(func(r benchdef.Result) float64 { return r.CPUMount + r.CPUKidsMount }), false},
		{"unmounting", perVolume(func(r benchdef.Result) float64 { return r.CPUUnmount + r.CPUKidsUnm }), false},
		{"driver CPU µs a volume", perVolume(drvCPU), false},
		{"x", drvCPU, true},
		{"kB allocated a volume", perVolume(func(r benchdef.Result) float64 { return (r.AllocMount + r.AllocUnm) / 1e3 }), false},
		{"peak RSS MB", func(r benchdef.Result) float64 { return r.RSS }, false},
		{"goroutines", func(r benchdef.Result) float64 { return float64(r.GoroutPeak) }, false},
		{"first call p50 ms", func(r benchdef.Result) float64 { return r.DrvStartP50 }, false},
		{"driver done p50 ms", func(r benchdef.Result) float64 { return r.DrvDoneP50 }, false},
	}
	apiColumns = []column{
		{"p50 ms", mountP50, false},
		{"all ms", total, false},
		{"unm p50 ms", func(r benchdef.Result) float64 { return r.UnmountP50 }, false},
		{"requests a pod", requestsPerPod, false},
		{"watches a pod", func(r benchdef.Result) float64 { return all(r.APIReqs)/float64(r.Pods) - requestsPerPod(r) }, false},
	}
	changeColumns = []column{
		{"p50 ms", func(r benchdef.Result) float64 { return r.UpdNaturalP50 }, false},
		{"p99 ms", func(r benchdef.Result) float64 { return r.UpdNaturalP99 }, false},
		{"all ms", func(r benchdef.Result) float64 { return r.UpdNaturalMax }, false},
		{"CPU s", func(r benchdef.Result) float64 { return r.UpdCPU }, false},
		{"noise %", func(r benchdef.Result) float64 { return r.NoisePct }, false},
	}
	idleColumns = []column{
		{"% of a core", func(r benchdef.Result) float64 { return r.IdleCPU }, false},
		{"kB/s allocated", func(r benchdef.Result) float64 { return r.IdleAllocMBs * 1e3 }, false},
		{"wake-ups/s", func(r benchdef.Result) float64 { return r.IdleSwitches }, false},
		{"goroutines", func(r benchdef.Result) float64 { return float64(r.Goroutines) }, false},
		{"RSS MB", func(r benchdef.Result) float64 { return r.RSSIdle }, false},
		{"driver calls", func(r benchdef.Result) float64 { return float64(r.IdleDrvCalls) }, false},
	}
	restartColumns = []column{
		{"all known ms", func(r benchdef.Result) float64 { return r.ReadyMs }, false},
		{"CPU s", cpu, false},
		{"peak RSS MB", func(r benchdef.Result) float64 { return r.RSS }, false},
		{"Stage", func(r benchdef.Result) float64 { return calls(r.Calls, "NodeStageVolume") }, false},
		{"Publish", func(r benchdef.Result) float64 { return calls(r.Calls, "NodePublishVolume") }, false},
		{"other calls", func(r benchdef.Result) float64 {
			return all(r.Calls) - calls(r.Calls, "NodeStageVolume", "NodePublishVolume")
		}, false},
		{"connections", func(r benchdef.Result) float64 { return float64(r.Conns) }, false},
	}
)

func perVolume(m metric) metric {
	return func(r benchdef.Result) float64 { return m(r) * 1e6 / float64(r.Pods*r.Volumes) }
}

// table prints all measurements.
func table(raw []benchdef.Result) {
	for _, r := range raw {
		if r.Errors > 0 {
			fmt.Printf("! %s %s: %d errors, left out: %s\n", r.System, workOf(r), r.Errors, r.FirstErr)
		}
	}
	l := quietest(raw)
	full := func(r benchdef.Result) bool { return r.Phase == "full" && r.Variant != "idle" }
	l.section("mount and unmount (medians; x: times the best of the bare calls in the same repetition)", full, mountColumns)
	l.section("cost", full, costColumns)
	l.section("with an API server over HTTPS", func(r benchdef.Result) bool { return full(r) && len(r.APIReqs) > 0 }, apiColumns)
	l.section("a change of a configMap until it is in the file, all pods at once", changed, changeColumns)
	l.section("idle with everything mounted", idle, idleColumns)
	l.section("restart with everything mounted", restarted, restartColumns)
	if scan := l.of("direct", csi(1000)).med(func(r benchdef.Result) float64 { return r.ScanMs }); scan > 0 {
		fmt.Printf("\nThe floor of a restart, listing 1,000 volumes' directories and reading the mount table once: %s ms.\n", num(scan))
	}
	l.growth()
}

// section prints a table of the cells for which ok holds.
func (l results) section(title string, ok func(benchdef.Result) bool, columns []column) {
	groups := map[string]results{}
	for _, r := range l {
		if ok(r) {
			k := fmt.Sprintf("%s|%v %s|%04d", workOf(r), r.System != "direct", r.System, r.Conc)
			groups[k] = append(groups[k], r)
		}
	}
	if len(groups) == 0 {
		return
	}
	head := []string{"work", "system", "n"}
	for _, c := range columns {
		head = append(head, c.head)
	}
	var rows [][]string
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		runs := groups[k]
		name := runs[0].System
		if runs[0].Conc > 0 {
			name += fmt.Sprintf(" %d", runs[0].Conc)
		}
		row := []string{label(runs[0]), name, fmt.Sprint(len(runs))}
		for _, c := range columns {
			if c.ratio {
				row = append(row, num(l.ratio(runs, c.value)))
			} else {
				row = append(row, num(runs.med(c.value)))
			}
		}
		rows = append(rows, row)
	}
	fmt.Printf("\n## %s\n", title)
	print(head, rows)
}

// growth prints the exponents b of y = a*N^b.
func (l results) growth() {
	var rows [][]string
	names := map[string]bool{}
	for _, r := range l {
		names[r.System] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		runs := l.of(name, func(r benchdef.Result) bool { return scaling(r) && (r.Conc == 0 || r.Conc == 32) })
		if runs.exponent(total) != 0 {
			rows = append(rows, []string{name, num(runs.exponent(total)), num(runs.exponent(unstaged)), num(runs.exponent(cpu))})
		}
	}
	if rows != nil {
		fmt.Println("\n## growth from 500 pods on: b of y = a N^b")
		print([]string{"system", "mount", "unmount", "CPU"}, rows)
	}
}

func print(head []string, rows [][]string) {
	w := make([]int, len(head))
	for _, r := range append([][]string{head}, rows...) {
		for i, c := range r {
			w[i] = max(w[i], utf8.RuneCountInString(c))
		}
	}
	line := func(r []string) {
		for i, c := range r {
			fmt.Printf("| %s%s ", c, strings.Repeat(" ", w[i]-utf8.RuneCountInString(c)))
		}
		fmt.Println("|")
	}
	line(head)
	for i := range head {
		fmt.Printf("|%s", strings.Repeat("-", w[i]+2))
	}
	fmt.Println("|")
	for _, r := range rows {
		line(r)
	}
}
