package benchdef

import (
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Snap holds the resources that a process has used so far.
type Snap struct {
	User, Sys, Kids float64 // seconds
	AllocBytes      uint64
	Mallocs         uint64
	Switches        int64 // voluntary context switches
	At              time.Time
}

func tv(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// TakeSnap reads rusage and the allocation counters of this process.
func TakeSnap() Snap {
	var s, c syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &s)
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	sys := tv(s.Stime)
	user := max(0, float64(ts.Sec)+float64(ts.Nsec)/1e9-sys) // their sum is exact to the nanosecond
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &c)
	sm := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/allocs:objects"}}
	metrics.Read(sm)
	return Snap{
		User: user, Sys: sys, Kids: tv(c.Utime) + tv(c.Stime),
		AllocBytes: sm[0].Value.Uint64(), Mallocs: sm[1].Value.Uint64(), Switches: s.Nvcsw, At: time.Now(),
	}
}

// CPU is user+sys since o.
func (s Snap) CPU(o Snap) float64 { return math.Round((s.User+s.Sys-o.User-o.Sys)*1e6) / 1e6 }

// ResetPeakRSS sets VmHWM to the current RSS.
func ResetPeakRSS() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// RSS returns current and peak resident MB of this process.
func RSS() (cur, peak float64) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	for _, l := range strings.Split(string(b), "\n") {
		f := strings.Fields(l)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			cur = Round(n / 1024)
		case "VmHWM:":
			peak = Round(n / 1024)
		}
	}
	return
}

// PeakGoroutines samples the goroutine count until stop is closed.
func PeakGoroutines(stop <-chan struct{}) <-chan int {
	out := make(chan int, 1)
	go func() {
		peak := 0
		t := time.NewTicker(20 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if n := runtime.NumGoroutine(); n > peak {
					peak = n
				}
			case <-stop:
				out <- peak
				return
			}
		}
	}()
	return out
}

// LoadAvg returns the first three fields of /proc/loadavg.
func LoadAvg() string {
	b, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if len(f) < 3 {
		return ""
	}
	return strings.Join(f[:3], " ")
}
