package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

// metric is a number of a run.
type metric func(benchdef.Result) float64

func mountP50(r benchdef.Result) float64 { return r.MountP50 }
func mountP99(r benchdef.Result) float64 { return r.MountP99 }
func total(r benchdef.Result) float64    { return r.TotalMs }
func unstaged(r benchdef.Result) float64 { return max(r.UnstageTotalMs, r.UnmountTotalMs) }
func cpu(r benchdef.Result) float64      { return r.CPU }
func drvCPU(r benchdef.Result) float64   { return r.CPUDrvMount + r.CPUDrvUnm }

// results are the runs in a report.
type results []benchdef.Result

// workOf names a cell: runs with the same name do the same work.
func workOf(r benchdef.Result) string {
	return fmt.Sprintf("%s/%s/%s/%s/%06dx%d/%g/%s", r.FS, r.Workload, r.Phase, r.Mode, r.Pods, r.Volumes, r.LatencyMs, r.Variant)
}

// quietest leaves out runs that failed, and noisy ones if there are quieter ones.
func quietest(l []benchdef.Result) results {
	key := func(r benchdef.Result) string { return fmt.Sprintf("%s|%s|%d", workOf(r), r.System, r.Conc) }
	quiet := map[string]bool{}
	for _, r := range l {
		quiet[key(r)] = quiet[key(r)] || r.Errors == 0 && r.NoisePct <= *tabNoise
	}
	return slices.DeleteFunc(slices.Clone(l), func(r benchdef.Result) bool {
		return r.Errors > 0 || quiet[key(r)] && r.NoisePct > *tabNoise
	})
}

// succeeded leaves out runs that failed.
func succeeded(l []benchdef.Result) results {
	return slices.DeleteFunc(slices.Clone(l), func(r benchdef.Result) bool { return r.Errors > 0 })
}

// of returns the runs of a system for which ok holds.
func (l results) of(system string, ok func(benchdef.Result) bool) results {
	return slices.DeleteFunc(slices.Clone(l), func(r benchdef.Result) bool { return r.System != system || !ok(r) })
}

// values returns a metric of every run.
func (l results) values(m metric) (v []float64) {
	for _, r := range l {
		v = append(v, m(r))
	}
	return v
}

func (l results) med(m metric) float64 { return benchdef.Median(l.values(m)) }

// floor returns the least number of the bare calls for the same work in the same
// repetition, over all concurrencies; 0 if there is none.
func (l results) floor(r benchdef.Result, m metric) (best float64) {
	for _, d := range l {
		if d.System == "direct" && d.Rep == r.Rep && workOf(d) == workOf(r) {
			if v := m(d); v > 0 && (best == 0 || v < best) {
				best = v
			}
		}
	}
	return best
}

// ratio returns the median, over the repetitions, of a run's number divided by the bare calls'.
func (l results) ratio(runs results, m metric) float64 {
	var v []float64
	for _, r := range runs {
		if f := l.floor(r, m); f > 0 {
			v = append(v, m(r)/f)
		}
	}
	return benchdef.Median(v)
}

// bare returns the median, over the repetitions, of the bare calls' least number.
func (l results) bare(runs results, m metric) float64 {
	var v []float64
	for _, r := range runs {
		if f := l.floor(r, m); f > 0 {
			v = append(v, f)
		}
	}
	return benchdef.Median(v)
}

// exponent fits b of y = a*N^b to the medians at each number of pods from 500 on.
func (l results) exponent(m metric) float64 {
	byPods := map[int]results{}
	for _, r := range l {
		if r.Pods >= 500 {
			byPods[r.Pods] = append(byPods[r.Pods], r)
		}
	}
	var n, sx, sy, sxx, sxy float64
	for pods, runs := range byPods {
		if y := runs.med(m); y > 0 {
			x, y := math.Log(float64(pods)), math.Log(y)
			n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
		}
	}
	if n < 2 {
		return 0
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
