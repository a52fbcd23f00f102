// Package doctor checks a host for what csi-volmgr and drivers need on it, and says what to do about what
// is missing.
//
// Owns: the list of checks, and what follows from their findings.
//
// Does not: change anything, start a program, or ask a driver or the daemon. It works before there is
// either.
//
// Concurrency: functions of a Config; any goroutine.
package doctor

import (
	"cmp"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Status is the result of a check.
type Status string

// The statuses, from good to bad.
const (
	// OK: all is as it should be.
	OK Status = "ok"
	// Warn: something works less well, or a kind of volume or a driver does not.
	Warn Status = "warn"
	// Fail: the daemon does not work, or volumes are not safe.
	Fail Status = "fail"
)

// Finding is the result of one check.
type Finding struct {
	// Check is the check's name, "area.thing".
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Found is what there is; Advice is what to do if that is not OK.
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// Report lists the findings by check name.
type Report struct {
	Status   Status    `json:"status"`
	Findings []Finding `json:"findings"`
}

// Config is what to check. Every field but Host is required.
type Config struct {
	// Root, StateDir, RegistrationDir and Socket are the daemon's paths.
	Root, StateDir, RegistrationDir, Socket string
	// Features is what the kernel can do for mounts. Shared reports whether mounts below a path propagate
	// ([mount.Kernel]).
	Features mount.Feature
	Shared   func(path string) (bool, error)
	// Kubelet returns the evidence that a kubelet runs on a root directory; "" if there is none.
	Kubelet func(root string) (string, error)
	// Drivers lists the drivers whose needs are checked.
	Drivers []state.DriverName
	// Unreached returns why mounts of the process behind a driver's socket do not appear on this host
	// ([Unreached]).
	Unreached func(socket string) (string, error)
	// Contended says of each PersistentVolume which claims contend for it, as the daemon that runs knows; nil without one.
	Contended map[string]string
	// UID is the user that the daemon would run as.
	UID int
	// Path lists the directories of programs.
	Path []string
	// Host is where /proc, /dev, /etc and /lib are; "" means this host's /.
	Host string
}

// examination is one run of the checks on a host.
type examination struct {
	Config
	report Report
}

// Examine runs the checks on the host.
func Examine(c Config) Report {
	e := &examination{Config: c}
	e.kernel()
	e.places()
	e.storageID()
	e.sockets()
	e.clock()
	e.limits()
	e.programs()
	e.owners()
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

// owners names the volumes that no claim gets, since several name them.
func (e *examination) owners() {
	for _, volume := range slices.Sorted(maps.Keys(e.Contended)) {
		e.warn("volumes.owner", volume+": "+e.Contended[volume], "look at them: csi-volmgr get pv, csi-volmgr get pvc -A")
	}
	if e.Contended != nil && len(e.Contended) == 0 {
		e.ok("volumes.owner", "no volume is contended")
	}
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
