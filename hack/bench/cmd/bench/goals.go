package main

import (
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

// measure is one number that decides about a goal.
type measure struct {
	what  string
	cell  func(benchdef.Result) bool
	value metric
	// ratio: the limit is a multiple of the bare calls' number.
	ratio bool
	limit float64
	unit  string
	// of computes the number from all runs of a system, if no single run has it.
	of func(all, runs results) float64
}

// goal is a target of the project, by number.
type goal struct {
	n        int
	what     string
	measures []measure
}

// csi matches the plain cells: a bind-mounting driver on tmpfs, one volume a pod.
func csi(pods int) func(benchdef.Result) bool { return variant(pods, "tmpfs", "") }

func variant(pods int, fs, name string) func(benchdef.Result) bool {
	return func(r benchdef.Result) bool {
		return r.Workload == "csi" && r.Mode == "bind" && r.Phase == "full" && r.LatencyMs == 0 && r.Volumes == 1 &&
			r.Pods == pods && r.FS == fs && r.Variant == name
	}
}

func slow(r benchdef.Result) bool {
	return r.Pods == 110 && r.Volumes == 5 && r.LatencyMs == 50 && r.FS == "tmpfs"
}

// inTree matches csi-volmgr with objects that it knows, and the kubelet with an API server
// without limits, since the kubelet knows no objects before its pods come.
func inTree(r benchdef.Result) bool {
	want := ""
	if r.System == "kubelet" {
		want = "http-nolimit"
	}
	return r.Workload == "intree" && r.Phase == "full" && r.Pods == 500 && (r.Variant == want || r.System == "direct")
}

func changed(r benchdef.Result) bool { return r.Workload == "intree" && r.Phase == "propagate" }

// requestsPerPod counts the requests to the API server that its limit applies to, so no watches.
func requestsPerPod(r benchdef.Result) (n float64) {
	for what, c := range r.APIReqs {
		if !strings.HasPrefix(what, "watch ") {
			n += float64(c)
		}
	}
	return n / float64(r.Pods)
}

func restarted(r benchdef.Result) bool {
	return r.Phase == "restart" && r.Mode == "bind" && r.FS == "tmpfs"
}

func scaling(r benchdef.Result) bool { return r.Pods >= 500 && csi(r.Pods)(r) }

func calls(m map[string]int64, verbs ...string) (n float64) {
	for _, v := range verbs {
		n += float64(m[v])
	}
	return n
}

func all(m map[string]int64) (n float64) {
	for _, c := range m {
		n += float64(c)
	}
	return n
}

func x(what string, cell func(benchdef.Result) bool, m metric, limit float64) measure {
	return measure{what: what, cell: cell, value: m, ratio: true, limit: limit, unit: "ms"}
}

func abs(what string, cell func(benchdef.Result) bool, m metric, limit float64, unit string) measure {
	return measure{what: what, cell: cell, value: m, limit: limit, unit: unit}
}

var allGoals = []goal{
	{n: 1, what: "1 pod until mounted", measures: []measure{x("p50", csi(1), mountP50, 3)}},
	{n: 2, what: "100 pods until mounted", measures: []measure{x("p50", csi(100), mountP50, 1.5), x("all", csi(100), total, 1.5)}},
	{n: 3, what: "1,000 pods until mounted", measures: []measure{x("p99", csi(1000), mountP99, 1.5), x("all", csi(1000), total, 1.5)}},
	{n: 4, what: "4,000 pods until mounted", measures: []measure{x("all", csi(4000), total, 1.5)}},
	{n: 5, what: "110 pods x 5, 50 ms a call", measures: []measure{x("all", slow, total, 1.2)}},
	{n: 6, what: "unmount and unstage", measures: []measure{
		x("1", csi(1), unstaged, 1.5), x("1,000", csi(1000), unstaged, 1.5), x("4,000", csi(4000), unstaged, 1.5),
	}},
	{n: 7, what: "manager's CPU a volume", measures: []measure{
		cpuOf("at 100", csi(100)), cpuOf("at 1,000", csi(1000)), cpuOf("at 4,000", csi(4000)),
	}},
	{n: 8, what: "what the driver is put to", measures: []measure{
		{what: "its CPU at 1,000", cell: csi(1000), value: drvCPU, ratio: true, limit: 1.1, unit: "s"},
		abs("calls a volume", csi(1000), func(r benchdef.Result) float64 { return (all(r.Calls) + all(r.CallsUnm)) / float64(r.Pods) }, 4, ""),
		abs("connections made", csi(1000), func(r benchdef.Result) float64 { return float64(r.Conns + r.ConnsUnm) }, 1, ""),
	}},
	{n: 9, what: "growth from 500 to 4,000, N^", measures: []measure{
		growth("mount", total), growth("unmount", unstaged), growth("CPU", cpu),
	}},
	{n: 10, what: "idle, 1,000 mounted", measures: []measure{
		abs("of a core", idle, func(r benchdef.Result) float64 { return r.IdleCPU }, 0.1, "%"),
		abs("allocated", idle, func(r benchdef.Result) float64 { return r.IdleAllocMBs * 1000 }, 10, "kB/s"),
		abs("wake-ups", idle, func(r benchdef.Result) float64 { return r.IdleSwitches }, 1, "/s"),
	}},
	{n: 11, what: "memory, 1,000 pods", measures: []measure{
		abs("peak RSS", csi(1000), func(r benchdef.Result) float64 { return r.RSS }, 60, "MB"),
		abs("peak goroutines", csi(1000), func(r benchdef.Result) float64 { return float64(r.GoroutPeak) }, 150, ""),
	}},
	{n: 12, what: "restart, 1,000 mounted", measures: []measure{
		{what: "until all are known", cell: restarted, value: func(r benchdef.Result) float64 { return r.ReadyMs }, ratio: true, limit: 10, unit: "ms", of: readyRatio},
		abs("Stage and Publish calls", restarted, func(r benchdef.Result) float64 {
			return calls(r.Calls, "NodeStageVolume", "NodePublishVolume")
		}, 0, ""),
	}},
	{n: 13, what: "1,000 pods, API server at 50 requests/s", measures: []measure{
		abs("all", variant(1000, "tmpfs", "http-qps50"), total, 10_000, "ms"),
		abs("requests a pod", variant(1000, "tmpfs", "http-qps50"), requestsPerPod, 3, ""),
	}},
	{n: 14, what: "500 pods x configMap, secret, emptyDir, token", measures: []measure{
		x("all", inTree, total, 2),
		{what: "CPU", cell: inTree, value: cpu, ratio: true, limit: 2, unit: "s"},
		abs("CPU of programs run", inTree, func(r benchdef.Result) float64 { return r.CPUKidsMount + r.CPUKidsUnm }, 0, "s"),
	}},
	{n: 15, what: "configMap change to file in 500 pods", measures: []measure{
		abs("p99", changed, func(r benchdef.Result) float64 { return r.UpdNaturalP99 }, 200, "ms"),
	}},
	{n: 16, what: "on disk: 1 to 4 and 6", measures: []measure{
		x("1, p50", variant(1, "disk", ""), mountP50, 1.5), x("100, p50", variant(100, "disk", ""), mountP50, 1.5),
		x("100, all", variant(100, "disk", ""), total, 1.5), x("1,000, all", variant(1000, "disk", ""), total, 1.5),
		x("unmount 1", variant(1, "disk", ""), unstaged, 1.5), x("unmount 1,000", variant(1000, "disk", ""), unstaged, 1.5),
	}},
	{n: 17, what: "order of arrival, burst of 1,000", measures: []measure{
		abs("p50 of all", csi(1000), func(r benchdef.Result) float64 { return r.MountP50 / r.TotalMs }, 0.55, ""),
	}},
	{n: 18, what: "20,000 foreign mounts, 100 pods", measures: []measure{
		{what: "p99 to that without", cell: variant(100, "tmpfs", "foreign"), value: mountP99, limit: 1.2, of: foreignRatio},
	}},
}

func cpuOf(what string, cell func(benchdef.Result) bool) measure {
	return measure{
		what: what, cell: cell, ratio: true, limit: 2, unit: "µs",
		value: func(r benchdef.Result) float64 { return r.CPU * 1e6 / float64(r.Pods*r.Volumes) },
	}
}

func growth(what string, m metric) measure {
	return measure{what: what, cell: scaling, value: m, limit: 1.05, of: func(_, runs results) float64 { return runs.exponent(m) }}
}

func idle(r benchdef.Result) bool { return r.Variant == "idle" && r.Workload == "csi" }

// readyRatio divides the time of a restart by that of listing the directories and reading
// the mount table once, which the bare calls do for as many volumes.
func readyRatio(everything, runs results) float64 {
	var v []float64
	for _, r := range runs {
		var scan []float64
		for _, d := range everything {
			if d.System == "direct" && d.Pods == r.Pods && d.FS == r.FS && d.Mode == r.Mode && d.Rep == r.Rep && d.ScanMs > 0 {
				scan = append(scan, d.ScanMs)
			}
		}
		if len(scan) > 0 {
			v = append(v, r.ReadyMs/benchdef.Median(scan))
		}
	}
	return benchdef.Median(v)
}

func foreignRatio(everything, runs results) float64 {
	if len(runs) == 0 {
		return 0
	}
	without := everything.of(runs[0].System, csi(100))
	return runs.med(mountP99) / without.med(mountP99)
}

// goals prints the result of every goal, for each system under test. If noise leaves no run
// beside its bare calls, goals uses and marks noisy runs.
func goals(l, all results) {
	fmt.Println("\n## goals (x: times the bare calls at their best concurrency, median over the repetitions; ~: only noisy runs)")
	var rows [][]string
	for _, g := range allGoals {
		for i, m := range g.measures {
			row := []string{fmt.Sprint(g.n), g.what, m.what + " ≤ " + limit(m)}
			if i > 0 {
				row[0], row[1] = "", ""
			}
			row = append(row, m.bare(l, all), m.shown(l, all, "kubelet"))
			for _, system := range []string{"volmgr", "daemon"} {
				row = append(row, m.shown(l, all, system), m.verdict(l, all, system))
			}
			rows = append(rows, row)
		}
	}
	print([]string{"goal", "work", "limit", "bare calls", "kubelet", "embedded", "", "daemon", ""}, rows)
}

func limit(m measure) string {
	if m.ratio {
		return num(m.limit) + " x"
	}
	if m.limit == 0 {
		return "0"
	}
	return strings.TrimSpace(num(m.limit) + " " + m.unit)
}

// judged returns the number to compare with the limit, the runs that it comes from, and
// whether they include noisy ones.
func (m measure) judged(l, all results, system string) (j float64, runs results, noisy bool) {
	for _, of := range []results{l, all} {
		runs = of.of(system, m.cell)
		switch {
		case m.of != nil:
			j = m.of(of, runs)
		case m.ratio:
			j = of.ratio(runs, m.value)
		default:
			return runs.med(m.value), runs, false
		}
		if j != 0 || len(runs) == 0 {
			return j, runs, noisy
		}
		noisy = true
	}
	return 0, runs, noisy
}

func (m measure) bare(l, all results) string {
	if !m.ratio || m.of != nil {
		return ""
	}
	for _, of := range []results{l, all} {
		if b := of.bare(of.of("volmgr", m.cell), m.value); b != 0 {
			return num(b) + " " + m.unit
		}
	}
	return ""
}

func (m measure) shown(l, all results, system string) string {
	j, runs, noisy := m.judged(l, all, system)
	if len(runs) == 0 || m.unmeasured(system) {
		return ""
	}
	text := "0"
	switch {
	case m.ratio:
		text = fmt.Sprintf("%s %s, %s x", num(runs.med(m.value)), m.unit, num(j))
	case m.of != nil || j != 0:
		text = strings.TrimSpace(num(j) + " " + m.unit)
	}
	if noisy {
		text += " ~"
	}
	return text
}

// unmeasured reports whether a system's program does not measure this.
func (m measure) unmeasured(system string) bool {
	return system == "daemon" && (m.unit == "kB/s" || m.what == "peak goroutines" || m.what == "CPU of programs run") || system == "kubelet" && m.what == "wake-ups"
}

func (m measure) verdict(l, all results, system string) string {
	j, runs, _ := m.judged(l, all, system)
	switch {
	case len(runs) == 0, m.unmeasured(system), j == 0 && (m.ratio || m.of != nil):
		return "not measured"
	case j <= m.limit:
		return "reached"
	}
	return "short of goal"
}
