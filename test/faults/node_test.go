package faults

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/server/client"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

const (
	// patience is how long anything may take on a machine that is busy. A test
	// that passes never waits for it.
	patience = 2 * time.Minute
	// glance is how often what has no event is looked at.
	glance     = 20 * time.Millisecond
	nodeName   = "node-1"
	driverName = "strict.faults.dev"
)

// node is a daemon with all its directories, and the strict driver beside it.
type node struct {
	t              *testing.T
	dir, root      string
	api            *client.Client
	daemon, driver *process
	script         csistrict.Script
	flags          []string // of the daemon, besides those of every node
	program        string   // of the daemon, where it is not the one of these tests
	object         csiDriver
}

// csiDriver is what the driver's CSIDriver object says.
type csiDriver struct {
	noAttach    bool
	noPodInfo   bool
	groupPolicy string
}

// newNode starts the driver with a script, and a daemon that knows it when
// newNode returns.
func newNode(t *testing.T, s csistrict.Script) *node {
	t.Helper()
	n := newPlace(t)
	n.begin(s)
	return n
}

// begin starts the driver with a script, and the daemon.
func (n *node) begin(s csistrict.Script) {
	n.t.Helper()
	// An object that asks for what its driver does not do has every volume wait.
	n.object.noAttach = n.object.noAttach || s.NoController || slices.Contains(s.Without, "PUBLISH_UNPUBLISH_VOLUME")
	n.play(s)
	n.startDriver()
	n.start()
	n.driverUp()
	n.do(n.class("class", ""), "apply", "-f", "-")
}

// explained waits until explain says all of the words of a thing, and returns
// what it says.
func (n *node) explained(kind, name string, words ...string) (text string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	for {
		text = n.cli("", "explain", kind, name).stdout
		missing := slices.IndexFunc(words, func(w string) bool { return !strings.Contains(text, w) })
		if missing < 0 {
			return text
		}
		select {
		case <-ctx.Done():
			n.t.Fatalf("explain %s %s does not say %q:\n%s", kind, name, words[missing], text)
		case <-time.After(glance):
		}
	}
}

// newPlace makes the directories of a node on which nothing runs yet.
func newPlace(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "faults-") // t.TempDir's path is too long for a socket's
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, root: filepath.Join(dir, "root")}
	n.api = client.New(n.socket())
	for _, d := range []string{n.root, n.state(), filepath.Join(n.root, "plugins_registry"), filepath.Join(n.root, "plugins", driverName)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(n.clean)
	return n
}

func (n *node) socket() string { return filepath.Join(n.dir, "run", "api.sock") }
func (n *node) state() string  { return filepath.Join(n.dir, "strict") }

// play puts a script into effect.
func (n *node) play(s csistrict.Script) {
	n.t.Helper()
	yes := true
	if s.PodInfo == nil {
		s.PodInfo = &yes
	}
	n.script = s
	if err := csistrict.WriteScript(n.state(), s); err != nil {
		n.t.Fatal(err)
	}
}

// fault adds a fault to the script, or ends those of its id where it has no call.
func (n *node) fault(f csistrict.Fault) {
	n.t.Helper()
	s := n.script
	s.Faults = slices.DeleteFunc(slices.Clone(s.Faults), func(old csistrict.Fault) bool { return old.ID == f.ID })
	if f.Call != "" {
		s.Faults = append(s.Faults, f)
	}
	n.play(s)
}

func (n *node) startDriver() {
	n.t.Helper()
	n.driver = start(n.t, filepath.Join(n.dir, "driver.log"), true, strict, "--drivername", driverName, "--nodeid", nodeName,
		"--statedir", n.state(), "--enable-attach", "--endpoint", filepath.Join(n.root, "plugins", driverName, "csi.sock"),
		"--registration-dir", filepath.Join(n.root, "plugins_registry"))
}

// start starts the daemon and returns when it answers.
func (n *node) start() {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.socket()), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.daemon = start(n.t, filepath.Join(n.dir, "daemon.log"), false, append([]string{
		cmp.Or(n.program, program), "run", "--root-dir", n.root,
		"--state-dir", filepath.Join(n.dir, "state"), "--socket", n.socket(), "--http-address", "off",
		"--manifests", "", "--node-name", nodeName, "--log-level", "debug",
	}, n.flags...)...)
	n.eventually("the daemon to answer", func() bool {
		_, err := n.api.Version(n.t.Context())
		return err == nil
	})
}

// eventually looks until ok.
func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			n.t.Fatalf("wait for %s: %v", what, context.Cause(ctx))
		case <-time.After(glance):
		}
	}
}

func (n *node) driverUp() {
	n.t.Helper()
	n.eventually("the driver to be up", func() bool {
		all, err := n.api.Drivers(n.t.Context())
		return err == nil && len(all) > 0 && slices.ContainsFunc(all, func(d manager.DriverStatus) bool { return d.Name == driverName && d.Up })
	})
}

// clean runs after all processes of the test were killed.
func (n *node) clean() {
	n.api.Close()
	for _, p := range []*process{n.daemon, n.driver} {
		if p == nil {
			continue
		}
		if log, err := os.ReadFile(p.log); err != nil || bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic:")) {
			n.t.Errorf("%s raced or panicked (%v):\n%s", p.args[0], err, log)
		}
	}
	if n.t.Failed() {
		for _, p := range []*process{n.daemon, n.driver} {
			if p != nil {
				n.t.Logf("end of %s:\n%s", p.log, p.tail())
			}
		}
		n.t.Logf("calls of the volumes that rules were broken for:\n%s", n.cases())
	}
	for _, m := range n.mounts() {
		unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	for _, device := range n.loops() {
		if f, err := os.Open(device); err == nil {
			unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
			f.Close()
		}
	}
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Error(err)
	}
}

// cases is the transcript of the volumes that rules were broken for.
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

// mounts lists the mount points of the node, the last made first.
func (n *node) mounts() (found []string) {
	n.t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], n.dir+"/") {
			found = append(found, f[4])
		}
	}
	slices.Reverse(found)
	return found
}

// loops lists the loop devices of the node's images.
func (n *node) loops() (found []string) {
	n.t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(b), n.dir+"/") {
			found = append(found, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return found
}

// cli runs csi-volmgr against the daemon.
func (n *node) cli(stdin string, args ...string) result {
	n.t.Helper()
	return run(n.t, stdin, program, append([]string{"--socket", n.socket()}, args...)...)
}

// do runs csi-volmgr, which must succeed.
func (n *node) do(stdin string, args ...string) string {
	n.t.Helper()
	r := n.cli(stdin, args...)
	if r.code != 0 {
		n.t.Fatalf("csi-volmgr %q: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

func (n *node) apply(docs ...string) {
	n.t.Helper()
	n.do(strings.Join(docs, "\n---\n"), "apply", "-f", "-")
}

// mounted waits until the pod has its volumes.
func (n *node) mounted(pods ...string) {
	n.t.Helper()
	for _, pod := range pods {
		if r := n.cli("", "wait", "pod", pod, "--for=mounted", "--timeout", patience.String()); r.code != 0 {
			n.t.Fatalf("pod %s is not mounted: %s\n%s", pod, r.stderr, n.cli("", "explain", "pod", pod).stdout)
		}
	}
}

// remove takes pods back.
func (n *node) remove(pods ...string) {
	n.t.Helper()
	for _, pod := range pods {
		n.do("", "delete", "pod", pod)
	}
}

// unmounted waits until nothing of the pods is here.
func (n *node) unmounted(pods ...string) {
	n.t.Helper()
	for _, pod := range pods {
		if r := n.cli("", "wait", "pod", pod, "--for=unmounted", "--timeout", patience.String()); r.code != 0 {
			n.t.Fatalf("pod %s is still here: %s\n%s", pod, r.stderr, n.cli("", "explain", "pod", pod).stdout)
		}
	}
}

func (n *node) deletePods(pods ...string) {
	n.t.Helper()
	n.remove(pods...)
	n.unmounted(pods...)
}

// deleteClaims deletes claims with their data, once no volume is in use.
func (n *node) deleteClaims(claims ...string) {
	n.t.Helper()
	n.noVolumes()
	n.do("", append([]string{"delete", "pvc"}, claims...)...)
	n.eventually("the claims to be gone", func() bool {
		all, err := n.api.PersistentVolumes(n.t.Context())
		if err != nil {
			n.t.Fatal(err)
		}
		return !slices.ContainsFunc(all, func(pv server.PVStatus) bool {
			return slices.ContainsFunc(claims, func(c string) bool { return pv.Claim == "default/"+c })
		})
	})
}

func (n *node) noVolumes() {
	n.t.Helper()
	n.eventually("no volume to be left", func() bool {
		all, err := n.api.Volumes(n.t.Context())
		return err == nil && len(all) == 0
	})
}

// hostPath returns where the pod's volume is on the host.
func (n *node) hostPath(pod, volume string) string {
	n.t.Helper()
	mounts, err := n.api.Mounts(n.t.Context(), "default", pod)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, m := range mounts {
		if m.Name == volume {
			return m.HostPath
		}
	}
	n.t.Fatalf("pod %s has no mounted volume %s, but %v", pod, volume, mounts)
	return ""
}

// events is the driver's transcript, of the volumes with a tag where there is one.
func (n *node) events(call string) (found []csistrict.Event) {
	n.t.Helper()
	all, err := csistrict.ReadTranscript(n.state())
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range all {
		if call == "" || e.Call == call {
			found = append(found, e)
		}
	}
	return found
}

// begun counts how often a call of the name arrived.
func (n *node) begun(call string) int { return n.count(csistrict.EventBegin, call) }

func (n *node) count(event, call string) (count int) {
	n.t.Helper()
	for _, e := range n.events(call) {
		if e.Event == event {
			count++
		}
	}
	return count
}

// await waits until count calls of the name have arrived.
func (n *node) await(call string, count int) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("call %d of %s", count, call), func() bool { return n.begun(call) >= count })
}

// model is what the driver knows.
func (n *node) model() csistrict.Model {
	n.t.Helper()
	m, err := csistrict.ReadModel(n.state())
	if err != nil {
		n.t.Fatal(err)
	}
	return m
}

// verdict ends the test: no rule was broken, and nothing is left of any volume.
func (n *node) verdict() {
	n.t.Helper()
	n.noVolumes()
	n.judged()
	for _, left := range n.model().Left() {
		n.t.Errorf("never taken back: %s", left)
	}
	if left := n.mounts(); len(left) > 0 {
		n.t.Errorf("mounts left: %q", left)
	}
	if left := n.loops(); len(left) > 0 {
		n.t.Errorf("loop devices left: %q", left)
	}
}

// judged fails the test for every rule that was broken.
func (n *node) judged() {
	n.t.Helper()
	for _, b := range csistrict.Breaches(n.events("")) {
		n.t.Errorf("breach of %s by %s of %s: %s", b.Rule, b.Call, b.Volume, b.Text)
	}
}

// class is a StorageClass whose volumes have a tag, and the driver's own object.
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
type volume struct {
	name, source string
	block        bool
	readOnly     bool
}

func fromClaim(claim string) volume {
	return volume{name: "data", source: fmt.Sprintf("persistentVolumeClaim: {claimName: %s}", claim)}
}

// pod is a pod with one container that uses all of the volumes.
func pod(name string, volumes ...volume) string { return groupPod(name, "", volumes...) }

// groupPod is a pod with a security context.
func groupPod(name, security string, volumes ...volume) string {
	var specs, mounts, devices strings.Builder
	for _, v := range volumes {
		fmt.Fprintf(&specs, "  - {name: %s, %s}\n", v.name, v.source)
		if v.block {
			fmt.Fprintf(&devices, "    - {name: %s, devicePath: /dev/%s}\n", v.name, v.name)
			continue
		}
		fmt.Fprintf(&mounts, "    - {name: %s, mountPath: /%s, readOnly: %v}\n", v.name, v.name, v.readOnly)
	}
	doc := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n%s  containers:\n  - name: main\n    image: none\n", name, security)
	for _, list := range []struct{ field, items string }{
		{"    volumeMounts:\n", mounts.String()}, {"    volumeDevices:\n", devices.String()}, {"  volumes:\n", specs.String()},
	} {
		if list.items != "" {
			doc += list.field + list.items
		}
	}
	return doc
}
