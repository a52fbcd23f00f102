package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// cell is one kind of work, done by every system.
type cell struct {
	workload, phase, mode string
	fs                    string // of the roots, the state and the driver: tmpfs or disk
	pods, volumes         int
	latency               time.Duration
	iters                 int
	idle, idleSync        time.Duration
	api                   string // the kubelet's: fake or http
	qps                   float64
	burst                 int
	variant               string
	foreign               int // number of other mounts
	noDirect              bool
	// only lists the systems that take part (kubelet, volmgr, daemon); "" is all.
	only string
	// slowKubelet: the kubelet takes minutes, so it takes part in the first repetition only.
	slowKubelet bool
}

func (c cell) name() string {
	return fmt.Sprintf("%s/%s/%s/%s/%dx%d/%s/%s", c.fs, c.workload, c.phase, c.mode, c.pods, c.volumes, c.latency, c.variant)
}

// iters returns how often a cycle is repeated within one run, for pooled latencies.
func iters(n int) int {
	switch {
	case n <= 1:
		return 20
	case n <= 10:
		return 10
	case n <= 100:
		return 4
	}
	return 1
}

// suites by name; each adds cells to a list.
var suites = []struct {
	name, what string
	cells      func(mk func(func(*cell)))
}{
	{"quick", "a first look: goals 1, 2, 3, 6, 7, 8, 11, 12 and 17, one cycle each", quickCells},
	{"goals", "every goal that has a scenario", goalCells},
	{"disk", "goal 16: state, roots and driver on disk", diskCells},
	{"noop", "a driver that mounts nothing", func(mk func(func(*cell))) {
		for _, n := range []int{1, 10, 100, 500, 1000} {
			mk(func(c *cell) { c.mode, c.pods = "noop", n })
		}
	}},
	{"api", "goal 13: an API server over HTTPS that has the pods, at 50 requests a second", apiCells},
	{"intree", "goals 14 and 15: configMap, secret, emptyDir and projected volumes", intreeCells},
}

func quickCells(mk func(func(*cell))) {
	mk(func(c *cell) { c.pods, c.iters = 1, 3 })
	mk(func(c *cell) { c.pods, c.iters = 100, 1 })
	mk(func(c *cell) { c.pods = 1000 })
	mk(func(c *cell) { c.phase, c.pods, c.noDirect = "restart", 1000, true })
}

func goalCells(mk func(func(*cell))) {
	for _, n := range []int{1, 100, 500, 1000, 2000, 4000} {
		mk(func(c *cell) { c.pods = n })
	}
	mk(func(c *cell) { c.pods, c.volumes, c.latency, c.iters = 110, 5, 50*time.Millisecond, 1 })
	mk(func(c *cell) { c.pods, c.idle, c.variant, c.noDirect, c.iters = 1000, 20*time.Second, "idle", true, 1 })
	mk(func(c *cell) { c.phase, c.pods, c.noDirect = "restart", 1000, true })
	mk(func(c *cell) { c.pods, c.foreign, c.variant = 100, 20_000, "foreign" })
}

func diskCells(mk func(func(*cell))) {
	for _, n := range []int{1, 100, 1000} {
		mk(func(c *cell) { c.fs, c.pods = "disk", n })
	}
}

func apiCells(mk func(func(*cell))) {
	for _, n := range []int{1, 100, 1000} {
		mk(func(c *cell) {
			c.pods, c.api, c.qps, c.burst, c.variant, c.slowKubelet = n, "http", 50, 100, "http-qps50", n == 1000
		})
	}
}

// intreeCells has objects that the manager knows when the clock starts, which the kubelet
// cannot do; an API server without limits; and a change in 500 pods at once.
func intreeCells(mk func(func(*cell))) {
	mkInTree := func(f func(*cell)) {
		mk(func(c *cell) {
			c.workload, c.mode, c.pods, c.volumes, c.qps = "intree", "tmpfs", 500, 4, -1
			f(c)
		})
	}
	mkInTree(func(c *cell) { c.only = "volmgr,daemon" })
	mkInTree(func(c *cell) { c.api, c.variant, c.only = "http", "http-nolimit", "volmgr,kubelet" })
	mkInTree(func(c *cell) {
		c.api, c.variant, c.phase, c.noDirect, c.slowKubelet = "http", "http-qps50", "propagate", true, true
		c.qps, c.burst = 50, 100
	})
}

// cells returns the cells of the named suites.
func cells(names string) (l []cell, err error) {
	asked := strings.Split(names, ",")
	for _, name := range asked {
		i := slices.IndexFunc(suites, func(s struct {
			name, what string
			cells      func(mk func(func(*cell)))
		},
		) bool {
			return s.name == name
		})
		if i < 0 {
			return nil, fmt.Errorf("no suite %q", name)
		}
		suites[i].cells(func(f func(*cell)) {
			c := cell{workload: "csi", phase: "full", mode: "bind", fs: "tmpfs", volumes: 1, api: "fake"}
			f(&c)
			if c.iters == 0 {
				c.iters = iters(c.pods * c.volumes)
			}
			l = append(l, c)
		})
	}
	return l, nil
}
