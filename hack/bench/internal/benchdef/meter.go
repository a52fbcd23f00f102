package benchdef

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Meter measures another process's resources. It cannot see the allocations.
type Meter struct {
	pid   int
	Began time.Time
}

// NewMeter returns the meter of a process that began just now.
func NewMeter(pid int) *Meter { return &Meter{pid: pid, Began: time.Now()} }

// Snap returns the CPU time, to the nanosecond, and the context switches.
func (m *Meter) Snap() Snap {
	s := Snap{At: time.Now()}
	var ts unix.Timespec
	// The clock id of a process's CPU time (clock_getcpuclockid(3)).
	if err := unix.ClockGettime(int32(^m.pid<<3|2), &ts); err == nil {
		s.User = float64(ts.Sec) + float64(ts.Nsec)/1e9
	}
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", m.pid))
	for _, t := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", m.pid, t.Name()))
		if err == nil {
			s.Switches += int64(status(b, "voluntary_ctxt_switches:"))
		}
	}
	return s
}

// RSS returns resident megabytes, now and at the peak.
func (m *Meter) RSS() (now, peak float64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	if err != nil {
		return 0, 0
	}
	return Round(status(b, "VmRSS:") / 1024), Round(status(b, "VmHWM:") / 1024)
}

// ResetPeakRSS sets the peak to the current RSS.
func (m *Meter) ResetPeakRSS() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.pid), []byte("5"), 0)
}

// status reads one number of a status file of proc(5).
func status(b []byte, name string) float64 {
	for l := range strings.SplitSeq(string(b), "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[0] == name {
			n, _ := strconv.ParseFloat(f[1], 64)
			return n
		}
	}
	return 0
}
