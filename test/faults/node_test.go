package faults

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

const (
	// glance is the pause between looks at things that have no events.
	glance     = 20 * time.Millisecond
	driverName = "strict.faults.dev"
)

// node is a daemon with all its directories, and the strict driver beside it.
type node struct {
	*harness.Node
	daemon, driver *harness.Process
	script         csistrict.Script
	flags          []string // of the daemon, besides those of every node
	program        string   // of the daemon, if not the one built for these tests
	object         csiDriver
}

// csiDriver is the spec of the driver's CSIDriver object.
type csiDriver struct {
	noAttach    bool
	noPodInfo   bool
	groupPolicy string
}

// newNode starts the driver with a script and the daemon, and returns once the daemon knows
// the driver.
func newNode(t *testing.T, s csistrict.Script) *node {
	t.Helper()
	n := newPlace(t)
	n.begin(s)
	return n
}

// begin starts the driver with a script, and the daemon, and makes the StorageClass.
func (n *node) begin(s csistrict.Script) {
	n.T.Helper()
	// If the object asks for an attachment that the driver cannot make, every volume waits.
	n.object.noAttach = n.object.noAttach || s.NoController || slices.Contains(s.Without, "PUBLISH_UNPUBLISH_VOLUME")
	n.play(s)
	n.startDriver()
	n.start()
	n.DriverUp(driverName)
	n.Do(n.class("class", ""), "apply", "-f", "-")
}

// explained waits until explain says all of the words about an object, and returns its
// text.
func (n *node) explained(kind, name string, words ...string) (text string) {
	n.T.Helper()
	n.Eventually(fmt.Sprintf("explain %s %s to say %q", kind, name, words), func() bool {
		text = n.CLI("", "explain", kind, name).Stdout
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	})
	return text
}

// newPlace makes the directories of a node without starting anything.
func newPlace(t *testing.T) *node {
	t.Helper()
	n := &node{Node: harness.NewNode(t, program, "run/api.sock")}
	for _, d := range []string{n.state(), filepath.Join(n.Root, "plugins_registry"), filepath.Join(n.Root, "plugins", driverName)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(n.clean)
	return n
}

func (n *node) state() string { return filepath.Join(n.Dir, "strict") }

// play gives the driver a new script.
func (n *node) play(s csistrict.Script) {
	n.T.Helper()
	yes := true
	if s.PodInfo == nil {
		s.PodInfo = &yes
	}
	n.script = s
	if err := csistrict.WriteScript(n.state(), s); err != nil {
		n.T.Fatal(err)
	}
}

// fault adds a fault to the script, or removes the one with this id if f has no call.
func (n *node) fault(f csistrict.Fault) {
	n.T.Helper()
	s := n.script
	s.Faults = slices.DeleteFunc(slices.Clone(s.Faults), func(old csistrict.Fault) bool { return old.ID == f.ID })
	if f.Call != "" {
		s.Faults = append(s.Faults, f)
	}
	n.play(s)
}

func (n *node) startDriver() {
	n.T.Helper()
	n.driver = harness.Supervise(n.T, n.Path("driver.log"), strict, "--drivername", driverName, "--nodeid", "id-of-"+harness.Name,
		"--statedir", n.state(), "--enable-attach", "--endpoint", filepath.Join(n.Root, "plugins", driverName, "csi.sock"),
		"--registration-dir", filepath.Join(n.Root, "plugins_registry"))
}

// start starts the daemon and returns when it answers.
func (n *node) start() {
	n.T.Helper()
	cmd := exec.Command(cmp.Or(n.program, program), n.Daemon(append([]string{"--manifests", ""}, n.flags...)...)...)
	n.daemon = n.Answered(func() *harness.Process { return harness.Start(n.T, n.Path("daemon.log"), cmd) })
}

// clean runs after all processes of the test were killed.
func (n *node) clean() {
	n.ShowIfFailed(n.daemon, n.driver)
	if n.T.Failed() {
		n.T.Logf("calls of the volumes that rules were broken for:\n%s", n.cases())
	}
}

// cases returns the driver's transcript of the volumes for which a rule was broken.
func (n *node) cases() string {
	all, err := csistrict.ReadTranscript(n.state())
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, e := range all {
		if slices.ContainsFunc(csistrict.Breaches(all), func(b csistrict.Event) bool { return b.Volume == e.Volume }) {
			fmt.Fprintf(&text, "%s %-6s %d %s %s %s %s %s\n", e.Time.Format("05.000"), e.Event, e.ID, e.Call, e.Volume, e.Code, e.Rule, e.Text)
		}
	}
	return text.String()
}

// events returns the driver's transcript of a call; "" is every call.
func (n *node) events(call string) (found []csistrict.Event) {
	n.T.Helper()
	all, err := csistrict.ReadTranscript(n.state())
	if err != nil {
		n.T.Fatal(err)
	}
	for _, e := range all {
		if call == "" || e.Call == call {
			found = append(found, e)
		}
	}
	return found
}

// begun counts the arrived calls with this name.
func (n *node) begun(call string) int { return n.count(csistrict.EventBegin, call) }

func (n *node) count(event, call string) (count int) {
	n.T.Helper()
	for _, e := range n.events(call) {
		if e.Event == event {
			count++
		}
	}
	return count
}

// await waits until count calls with this name have arrived.
func (n *node) await(call string, count int) {
	n.T.Helper()
	n.Eventually(fmt.Sprintf("call %d of %s", count, call), func() bool { return n.begun(call) >= count })
}

// model returns what the driver knows.
func (n *node) model() csistrict.Model {
	n.T.Helper()
	m, err := csistrict.ReadModel(n.state())
	if err != nil {
		n.T.Fatal(err)
	}
	return m
}

// verdict ends the test. It fails if a rule was broken or anything is left of a volume.
func (n *node) verdict() {
	n.T.Helper()
	n.NoVolumes()
	n.judged()
	for _, left := range n.model().Left() {
		n.T.Errorf("never taken back: %s", left)
	}
	n.NothingHeld()
}

// judged fails the test for every rule that was broken.
func (n *node) judged() {
	n.T.Helper()
	for _, b := range csistrict.Breaches(n.events("")) {
		n.T.Errorf("breach of %s by %s of %s: %s", b.Rule, b.Call, b.Volume, b.Text)
	}
}

// class returns a StorageClass whose volumes have a tag, and the driver's CSIDriver object.
func (n *node) class(name, tag string, params ...string) string {
	extra := ""
	for i := 0; i < len(params); i += 2 {
		extra += fmt.Sprintf("  %s: %q\n", params[i], params[i+1])
	}
	return fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[1]s}
spec:
  attachRequired: %[2]v
  podInfoOnMount: %[3]v
  fsGroupPolicy: %[4]s
  volumeLifecycleModes: [Persistent, Ephemeral]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[5]s}
provisioner: %[1]s
reclaimPolicy: Delete
allowVolumeExpansion: true
parameters:
  tag: %[6]q
%[7]s`, driverName, !n.object.noAttach, !n.object.noPodInfo, cmp.Or(n.object.groupPolicy, "ReadWriteOnceWithFSType"), name, tag, extra)
}

// want is a claim.
type want struct {
	name, class, mode, access, size string
}

func (w want) String() string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec:
  storageClassName: %s
  accessModes: [%s]
  volumeMode: %s
  resources: {requests: {storage: %s}}`, w.name, cmp.Or(w.class, "class"), cmp.Or(w.access, "ReadWriteOnce"),
		cmp.Or(w.mode, "Filesystem"), cmp.Or(w.size, "1Mi"))
}

// volume is one volume of a pod: its name and its source as YAML.
type volume = harness.Volume

func fromClaim(claim string) volume { return harness.FromClaim("data", claim) }

// unmount removes a mount behind the daemon's back. It pauses the daemon, which therefore
// does not keep the mount busy by looking at it.
func (n *node) unmount(path string) {
	n.T.Helper()
	var err error
	n.daemon.Paused(func() { err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW) })
	if err != nil {
		n.T.Fatalf("unmount %s: %v", path, err)
	}
}
