package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

// busy returns the CPU time, in seconds, that all processors have spent working.
func busy() (b float64) {
	s, _ := os.ReadFile("/proc/stat")
	f := strings.Fields(strings.SplitN(string(s), "\n", 2)[0])
	for i, x := range f[1:] {
		n, _ := strconv.ParseFloat(x, 64)
		if i != 3 && i != 4 && i < 8 { // not idle, iowait; guest is in user
			b += n / 100
		}
	}
	return b
}

// quiet waits until the machine has done little for half a second, up to a limit.
func quiet() {
	for d := time.Now().Add(*quietWait); time.Now().Before(d); {
		b0, t0 := busy(), time.Now()
		time.Sleep(500 * time.Millisecond)
		if (busy()-b0)/time.Since(t0).Seconds()/float64(runtime.NumCPU())*100 < *maxNoise {
			return
		}
	}
}

func selfCPU() float64 {
	s := benchdef.TakeSnap()
	return s.User + s.Sys
}
