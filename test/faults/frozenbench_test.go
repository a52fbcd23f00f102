package faults

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

var frozenBench = flag.Int("frozen-bench", 0, "run TestBenchFrozen with so many pods")

// churned unmounts and mounts each pod once, and returns how long each step took.
func (n *node) churned(docs map[string]string) (took []time.Duration) {
	n.T.Helper()
	const workers = 4
	names := make(chan string)
	var mu sync.Mutex
	var wg sync.WaitGroup
	until := func(name string, goal client.Goal) {
		if p, err := n.API.Wait(n.T.Context(), client.Wait{Namespace: "default", Name: name, For: goal, Timeout: harness.Patience}, nil); err != nil || p.TimedOut {
			n.T.Errorf("pod %s is not %s: %v", name, goal, err)
		}
	}
	for range workers {
		wg.Go(func() {
			for name := range names {
				began := time.Now()
				if err := n.API.DeletePod(n.T.Context(), "default", name); err != nil {
					n.T.Error(err)
				}
				until(name, client.Unmounted)
				gone := time.Now()
				if _, err := n.API.Apply(n.T.Context(), server.Manifest{Name: "churn", Data: []byte(docs[name])}); err != nil {
					n.T.Error(err)
				}
				until(name, client.Mounted)
				mu.Lock()
				took = append(took, gone.Sub(began), time.Since(gone))
				mu.Unlock()
			}
		})
	}
	for name := range docs {
		names <- name
	}
	close(names)
	wg.Wait()
	return took
}

// p99 returns the 99th percentile.
func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

// TestBenchFrozen prints what frozen storage costs the pods that do not use it: the 99th
// percentile of mounts and unmounts beside one frozen mount, compared with none, in
// alternating rounds, and how soon a daemon is ready beside fifty. It has no limit to
// exceed, since a busy machine proves nothing.
func TestBenchFrozen(t *testing.T) {
	if *frozenBench == 0 {
		t.Skip("a measurement: make bench-frozen")
	}
	n := newNode(t, csistrict.Script{})
	docs := map[string]string{}
	var pods []string
	for i := range *frozenBench {
		name := fmt.Sprintf("pod-%d", i)
		pods, docs[name] = append(pods, name), harness.Pod(name, inline())
		n.Apply(docs[name])
	}
	n.Mounted(pods...)
	frozen := pods[0]
	delete(docs, frozen)
	target := n.HostPath(frozen, "data")
	n.churned(docs) // to warm up
	took := map[bool][]time.Duration{}
	for _, freeze := range []bool{false, true, true, false, false, true} {
		if freeze {
			thaw := n.freeze(target)
			took[true] = append(took[true], n.churned(docs)...)
			thaw()
			// A process that waited for the frozen mount may still have it open.
			if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			continue
		}
		took[false] = append(took[false], n.churned(docs)...)
	}
	with, without := p99(took[true]), p99(took[false])
	fmt.Printf("1 of %d mounts frozen: p99 of %d mounts and unmounts of the others %v, without it %v of %d: ratio %.2f\n",
		*frozenBench, len(took[true]), with.Round(time.Microsecond), without.Round(time.Microsecond), len(took[false]), float64(with)/float64(without))

	const many = 50
	n.daemon.Kill()
	for _, p := range pods[:many] {
		n.freeze(n.target(p))
	}
	began := time.Now()
	n.start()
	answers := time.Since(began)
	n.DriverUp(driverName)
	fmt.Printf("%d mounts frozen at the start: answers after %v, has its driver after %v\n", many, answers.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	for _, args := range [][]string{{"get", "pods"}, {"get", "volumes"}, {"explain", "pod", frozen}, {"who", filepath.Clean(target)}} {
		began := time.Now()
		n.Do("", args...)
		fmt.Printf("csi-volmgr %v beside them: %v\n", args[0], time.Since(began).Round(time.Millisecond))
	}
	for _, p := range pods[:many] {
		if err := unix.Unmount(n.target(p), unix.UMOUNT_NOFOLLOW); err != nil {
			t.Error(err)
		}
	}
	n.DeletePods(pods...)
	n.verdict()
}
