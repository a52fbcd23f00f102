//go:build vm

package guest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

const (
	daemonUnit = "csi-volmgr.service"
	drainUnit  = "csi-volmgr-drain.service"
	driverUnit = "strict-driver.service"
	stopTarget = "stopping.target"
	gateUnit   = "csi-volmgr-default-web.service"
	unitDir    = "/etc/systemd/system/"
	apiSocket  = "/run/csi-volmgr/csi-volmgr.sock"

	strictName = "strict.csi-volmgr.dev"
	strictDir  = "/var/lib/strict"
	nodeRoot   = "/var/lib/kubelet"
)

const webManifest = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: ` + strictName + `}
spec: {attachRequired: false, podInfoOnMount: true}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: strict}
provisioner: ` + strictName + `
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {storageClassName: strict, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
    - {name: main, image: main, volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
    - {name: data, persistentVolumeClaim: {claimName: data}}
`

// systemNode is this machine set up as in docs/systemd.md: csi-volmgr is installed,
// its units are enabled and started, and the driver is a service.
type systemNode struct {
	*testing.T
	api *client.Client
}

func newSystemNode(t *testing.T) systemNode {
	t.Helper()
	n := systemNode{t, client.New(apiSocket)}
	t.Cleanup(n.api.Close)
	t.Cleanup(func() {
		if t.Failed() {
			out, err := n.try("journalctl", "--no-pager", "--lines=150", "--output=short-precise")
			t.Logf("the journal's end: %v\n%s", err, out)
		}
	})
	if _, err := os.Stat(unitDir + gateUnit); errors.Is(err, fs.ErrNotExist) {
		n.enable()
	}
	sh(t, "systemctl", "start", "csi-volmgr.socket", daemonUnit, drainUnit)
	return n
}

// enable runs once for all tests of this machine.
func (n systemNode) enable() {
	n.Helper()
	n.Logf("systemd is up after %s s", strings.Fields(read(n.T, "/proc/uptime"))[0])
	for _, dir := range []string{strictDir, nodeRoot + "/plugins_registry", nodeRoot + "/plugins/" + strictName} {
		mkdir(n.T, dir)
	}
	yes := true
	if err := csistrict.WriteScript(strictDir, csistrict.Script{PodInfo: &yes}); err != nil {
		n.Fatal(err)
	}
	write(n.T, "/etc/csi-volmgr/config.yaml", "node-name: node-1\n")
	for pod, timeout := range map[string]string{"web": "2m", "nobody": "1s"} {
		unit := sh(n.T, "csi-volmgr", "volume", "unit", "pod", pod, "--timeout="+timeout)
		write(n.T, unitDir+"csi-volmgr-default-"+pod+".service", unit)
	}
	sh(n.T, "systemctl", "daemon-reload")
	sh(n.T, "systemctl", "enable", "--now", "csi-volmgr.socket", daemonUnit, drainUnit)
}

// try runs a program that may fail.
func (n systemNode) try(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

// show returns a property of a unit.
func (n systemNode) show(unit, property string) string {
	n.Helper()
	return strings.TrimSpace(sh(n.T, "systemctl", "show", "--timestamp=us", "--value", "--property="+property, unit))
}

func (n systemNode) want(unit, property, want string) {
	n.Helper()
	if got := n.show(unit, property); got != want {
		n.Errorf("%s: %s is %q, want %q", unit, property, got, want)
	}
}

// time returns a timestamp of a unit.
func (n systemNode) time(unit, property string) time.Time {
	n.Helper()
	at, err := time.Parse("Mon 2006-01-02 15:04:05.999999 MST", n.show(unit, property))
	if err != nil {
		n.Fatal(err)
	}
	return at
}

// apply applies pod web with its claim.
func (n systemNode) apply() {
	n.Helper()
	write(n.T, "/run/web.yaml", webManifest)
	sh(n.T, "csi-volmgr", "apply", "-f", "/run/web.yaml")
}

// web starts the service in its volume.
func (n systemNode) web() {
	n.Helper()
	sh(n.T, "systemctl", "start", driverUnit)
	n.apply()
	sh(n.T, "systemctl", "start", "web.service")
}

// target returns the path of the volume of pod web.
func (n systemNode) target() string {
	n.Helper()
	mounts, err := n.api.Mounts(n.Context(), "default", "web")
	if err != nil || len(mounts) != 1 {
		n.Fatalf("mounts of pod web: %+v, %v", mounts, err)
	}
	return mounts[0].HostPath
}

func (n systemNode) driverUp() bool {
	all, err := n.api.Drivers(n.Context())
	return err == nil && slices.ContainsFunc(all, func(d server.DriverStatus) bool { return d.Name == strictName && d.Up })
}

// table returns the mount IDs and mount points of volumes.
func (n systemNode) table() (lines []string) {
	n.Helper()
	for line := range strings.Lines(read(n.T, "/proc/self/mountinfo")) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], nodeRoot+"/") {
			lines = append(lines, f[0]+" "+f[4])
		}
	}
	slices.Sort(lines)
	return lines
}

// transcript returns the driver's record of its calls.
func (n systemNode) transcript() []csistrict.Event {
	n.Helper()
	all, err := csistrict.ReadTranscript(strictDir)
	if err != nil {
		n.Fatal(err)
	}
	return all
}

// calls returns the calls that change something, without those for capabilities and
// for statistics, which the daemon repeats.
func (n systemNode) calls() (names []string) {
	n.Helper()
	for _, e := range n.transcript() {
		asks := strings.Contains(e.Call, "Get") || e.Call == "Probe"
		if e.Event == csistrict.EventBegin && !asks {
			names = append(names, e.Call)
		}
	}
	return names
}

// begun returns the time at which the last such call arrived.
func (n systemNode) begun(call string) time.Time {
	n.Helper()
	return n.last(call, func(e csistrict.Event) bool { return e.Event == csistrict.EventBegin })
}

// ended returns the time at which the last such call had succeeded.
func (n systemNode) ended(call string) time.Time {
	n.Helper()
	return n.last(call, func(e csistrict.Event) bool { return e.Event == csistrict.EventEnd && e.Code == "OK" })
}

func (n systemNode) last(call string, is func(csistrict.Event) bool) (at time.Time) {
	n.Helper()
	for _, e := range n.transcript() {
		if e.Call == call && is(e) {
			at = e.Time
		}
	}
	if at.IsZero() {
		n.Fatalf("the driver knows of no such %s", call)
	}
	return at
}

// verdict fails the test if a call broke a rule of CSI.
func (n systemNode) verdict() {
	n.Helper()
	for _, b := range csistrict.Breaches(n.transcript()) {
		n.Errorf("%s of %s broke rule %s: %s", b.Call, b.Volume, b.Rule, b.Text)
	}
}

// moment is the time of an event.
type moment struct {
	what string
	at   time.Time
}

// entry is a message by systemd about a unit, in the system's journal.
type entry struct {
	Unit    string `json:"UNIT"`
	Message string `json:"MESSAGE"`
	// Sent and Received are in microseconds since 1970; Sent may be missing.
	Sent     string `json:"_SOURCE_REALTIME_TIMESTAMP"`
	Received string `json:"__REALTIME_TIMESTAMP"`
}

// journal returns all messages by systemd about units, in order.
func (n systemNode) journal() (entries []entry) {
	n.Helper()
	sh(n.T, "journalctl", "--sync")
	for line := range bytes.Lines([]byte(sh(n.T, "journalctl", "--quiet", "--no-pager", "--output=json", "_PID=1"))) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			n.Fatalf("the journal's %q: %v", line, err)
		}
		entries = append(entries, e)
	}
	return entries
}

// logged returns the time of systemd's last message that the unit is in the given
// state, such as Stopping or Stopped.
func (n systemNode) logged(state, unit string) (at time.Time) {
	n.Helper()
	for _, e := range n.journal() {
		if e.Unit != unit || !strings.HasPrefix(e.Message, state+" ") {
			continue
		}
		us, err := strconv.ParseInt(cmp.Or(e.Sent, e.Received), 10, 64)
		if err != nil {
			n.Fatal(err)
		}
		at = time.UnixMicro(us)
	}
	if at.IsZero() {
		n.Fatalf("the journal has not that %s is %s", unit, strings.ToLower(state))
	}
	return at
}
