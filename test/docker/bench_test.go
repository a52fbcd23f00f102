//go:build docker

package docker

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestBenchRun prints how long docker run --rm takes with a staged csi volume, with an unstaged one
// and with a volume of Docker's local driver, by turns in one run. BENCH_RUNS is the number of
// runs; make bench-docker sets 30.
func TestBenchRun(t *testing.T) {
	runs := 3
	if text := os.Getenv("BENCH_RUNS"); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
			t.Fatalf("BENCH_RUNS=%s: want a number of runs", text)
		}
	}
	r := newRig(t)
	r.startDocker()
	r.volumeCreate("docker", "staged", "size=16Mi")
	r.volumeCreate("docker", "cold", "size=16Mi")
	r.docker("volume", "create", "builtin")
	r.docker("run", "-d", "--name", "holder", "-v", "staged:/data", busybox, "sleep", "100000")
	took := map[string][]time.Duration{}
	timed := func(volume string) {
		begun := time.Now()
		r.docker("run", "--rm", "-v", volume+":/data", busybox, "sync")
		took[volume] = append(took[volume], time.Since(begun))
	}
	for range runs {
		r.Eventually("the cold volume to be unstaged", func() bool {
			v, counted := r.status("cold")
			return !counted && v.Mountpoint == "" && len(r.Loops()) == 1
		})
		for _, volume := range []string{"builtin", "staged", "cold"} {
			timed(volume)
		}
	}
	for _, volume := range []string{"builtin", "staged", "cold"} {
		d := took[volume]
		slices.Sort(d)
		fmt.Printf("docker run --rm, volume %-8s n=%d p50=%s min=%s max=%s\n", volume, len(d),
			d[len(d)/2].Round(time.Millisecond), d[0].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond))
	}
	r.listThousand()
}

// listThousand prints how long the plugin takes to list a thousand volumes.
func (r *rig) listThousand() {
	r.T.Helper()
	for i := range 1000 {
		name := fmt.Sprintf("listed-%d", i)
		options := map[string]string{"driver": "local.csi-volmgr.dev", "handle": name}
		if answer := r.post("VolumeDriver.Create", map[string]any{"Name": name, "Opts": options}); answer != "{}\n" {
			r.T.Fatal(answer)
		}
	}
	var took []time.Duration
	for range 20 {
		begun := time.Now()
		r.ask("VolumeDriver.List", "")
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	fmt.Printf("VolumeDriver.List of 1003 volumes n=%d p50=%s max=%s\n", len(took), took[len(took)/2], took[len(took)-1])
}
