// Package doctor looks at a host and says what csi-volmgr and drivers will miss
// on it, and what to do about it.
//
// Owns: the list of what is looked at, and what follows from what is found.
//
// Does not: change anything, start a program, or ask a driver or the daemon. It
// works before there is either.
//
// Concurrency: functions of a Config; any goroutine.
package doctor

import (
	"cmp"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Status is how a check ended.
type Status string

// The statuses, from good to bad.
const (
	// OK: as it should be.
	OK Status = "ok"
	// Warn: something works less well, or a kind of volume or a driver does not.
	Warn Status = "warn"
	// Fail: the daemon does not work, or volumes are not safe.
	Fail Status = "fail"
)

// Finding is one thing that was looked at.
type Finding struct {
	// Check names it, "area.thing".
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Found is what there is; Advice what to do where that is not OK.
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// Report is what was found, in the order of the checks' names.
type Report struct {
	Status   Status    `json:"status"`
	Findings []Finding `json:"findings"`
}

// Config says what is looked at. All fields but Host are required.
type Config struct {
	// Root, StateDir, RegistrationDir and Socket are the daemon's.
	Root, StateDir, RegistrationDir, Socket string
	// Features are what the kernel can do for mounts, Shared whether mounts below
	// a path propagate ([mount.Kernel]).
	Features mount.Feature
	Shared   func(path string) (bool, error)
	// Kubelet says what shows that a kubelet runs on a root directory; "" for nothing.
	Kubelet func(root string) (string, error)
	// Drivers are those whose needs are looked at.
	Drivers []state.DriverName
	// Unreached says why what the process behind a driver's socket mounts does not
	// appear on this host ([Unreached]).
	Unreached func(socket string) (string, error)
	// UID is the user that the daemon would run as.
	UID int
	// Path are the directories of programs.
	Path []string
	// Host is where /proc, /dev, /etc and /lib are; "" means this host's /.
	Host string
}

// examination is one look at a host.
type examination struct {
	Config
	report Report
}

// Examine looks at the host.
func Examine(c Config) Report {
	e := &examination{Config: c}
	e.kernel()
	e.places()
	e.sockets()
	e.clock()
	e.limits()
	e.programs()
	for _, d := range c.Drivers {
		e.driver(d)
	}
	slices.SortStableFunc(e.report.Findings, func(a, b Finding) int { return cmp.Compare(a.Check, b.Check) })
	e.report.Status = OK
	for _, f := range e.report.Findings {
		if f.Status == Fail || f.Status == Warn && e.report.Status == OK {
			e.report.Status = f.Status
		}
	}
	return e.report
}

func (e *examination) ok(check, found string) {
	e.report.Findings = append(e.report.Findings, Finding{Check: check, Status: OK, Found: found})
}

func (e *examination) warn(check, found, advice string) {
	e.report.Findings = append(e.report.Findings, Finding{check, Warn, found, advice})
}

func (e *examination) fail(check, found, advice string) {
	e.report.Findings = append(e.report.Findings, Finding{check, Fail, found, advice})
}
