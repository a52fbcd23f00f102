package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// An older program has volumes of Docker, Nomad and mount(8), a PersistentVolume that claims of two namespaces share, one
// whose claim was deleted, a schedule and a snapshot. It is replaced by the newer one and back. Each keeps what it has:
// no call is made that makes or takes anything, no mount changes, no name changes.
//
// Faults: A061.
func TestUpgradeAndBackKeepsWhatEachHas(t *testing.T) {
	if before == "" {
		t.Skip("UPGRADE_FROM=revision, the release before this one: make upgrade")
	}
	t.Parallel()
	n := newPlace(t)
	disks, plugin := filepath.Join(n.Dir, "disks"), n.Path("plugin.sock")
	n.flags = []string{"--host-path-allow", disks, "--volume-plugin", "--volume-plugin-socket", plugin}
	n.program, n.StorageID = before, "" // the older program has no such flag
	n.begin(csistrict.Script{})
	u := upgraded{node: n, plugin: plugin}

	u.docker("Create", map[string]any{"Name": "db", "Opts": map[string]string{"class": "class", "size": "1Mi"}})
	n.write(filepath.Join(u.docker("Mount", map[string]any{"Name": "db", "ID": "c1"}).Mountpoint, "f"), "docker")
	n.write(filepath.Join(u.nomad("create"), "f"), "nomad")
	_, err := n.API.CreateNamed(t.Context(), server.NamedRequest{
		Name: "default/srv", FrontEnd: "mount", Options: map[string]string{"class": "class", "size": "1Mi"},
	})
	must(t, err)
	from, err := n.API.MountNamed(t.Context(), "", "default/srv")
	must(t, err)
	srv := n.Path("srv")
	must(t, os.Mkdir(srv, 0o755))
	must(t, unix.Mount(from, srv, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(srv, unix.MNT_DETACH) })
	n.write(filepath.Join(srv, "f"), "mount")

	// bank/data has the shared volume by the program's choice; evil/thief names it and has it too, as that program allows.
	for _, disk := range []string{"shared", "released"} {
		must(t, os.MkdirAll(filepath.Join(disks, disk), 0o755))
	}
	n.Apply(u.disk("shared"), inSpace("bank", "data", "shared", ""), u.disk("released"), inSpace("bank", "old", "released", ""),
		podIn("bank", "web", "data"), podIn("bank", "was", "old"))
	u.hasData("bank", "web", "")
	u.hasData("bank", "was", "")
	n.write(filepath.Join(disks, "shared", "f"), "of bank")
	n.write(filepath.Join(disks, "released", "f"), "of bank's old claim")
	n.Apply(inSpace("evil", "thief", "shared", "shared"), podIn("evil", "mallory", "thief"))
	said := n.CLI("", "wait", "pod", "mallory", "-n", "evil") // which a later program refuses
	t.Logf("the second claim of the shared volume: %d %s%s", said.Code, said.Stdout, said.Stderr)
	n.Do("", "delete", "pod", "was", "-n", "bank")
	n.Do("", "delete", "pvc", "old", "-n", "bank", "--reason", "moved")

	n.Apply(want{name: "kept"}.String())
	n.Do("", "snapshot", "create", "pvc/kept", "--name", "monday")
	n.Do("", "snapshot", "schedule", "pvc/kept", "--every", "24h", "--keep", "2")
	n.Eventually("the snapshots to be ready", func() bool {
		return strings.Count(n.CLI("", "get", "snapshots").Stdout, "Ready") >= 2
	})
	names := u.names()
	t.Logf("what each has:\n%s", names)

	replace := func(by string) {
		t.Helper()
		table, calls := n.table(), u.calls()
		n.daemon.Ask()
		n.program = by
		n.start()
		n.DriverUp(driverName)
		for path, text := range map[string]string{
			filepath.Join(u.docker("Mount", map[string]any{"Name": "db", "ID": "c1"}).Mountpoint, "f"): "docker",
			filepath.Join(u.nomad("create"), "f"):                                                      "nomad", filepath.Join(srv, "f"): "mount",
		} {
			n.wantFile(path, text)
		}
		u.hasData("bank", "web", "of bank")
		if after := n.table(); !slices.Equal(table, after) {
			t.Errorf("the mount table changed:\n%s\nbecame\n%s", strings.Join(table, "\n"), strings.Join(after, "\n"))
		}
		if after := u.calls(); !slices.Equal(calls, after) {
			t.Errorf("calls made: %q", after[len(calls):])
		}
		if after := u.names(); after != names {
			t.Errorf("names before:\n%s\nand after:\n%s", names, after)
		}
	}
	replace("")
	n.Apply(inSpace("evil", "later", "released", "released"), inSpace("bank", "old", "released", ""), podIn("bank", "again", "old"))
	u.hasData("bank", "again", "of bank's old claim")
	if said := n.Do("", "explain", "pvc", "later", "-n", "evil"); !strings.Contains(said, "bank/old") {
		t.Errorf("the volume of a deleted claim: %s", said)
	}
	n.Do("", "delete", "pod", "again", "-n", "bank")
	n.Do("", "delete", "pvc", "later", "-n", "evil", "--reason", "refused")
	names = u.names()
	replace(before)
	replace("")
}

// upgraded is a node with front ends.
type upgraded struct {
	*node
	plugin string
}

type dockerAnswer struct{ Mountpoint, Err string }

// docker asks the volume plugin.
func (u upgraded) docker(method string, request map[string]any) (answer dockerAnswer) {
	u.T.Helper()
	body, err := json.Marshal(request)
	must(u.T, err)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.plugin)
		},
	}}
	post, err := http.NewRequestWithContext(u.T.Context(), http.MethodPost, "http://plugin/VolumeDriver."+method, bytes.NewReader(body))
	must(u.T, err)
	r, err := client.Do(post)
	must(u.T, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	must(u.T, err)
	must(u.T, json.Unmarshal(b, &answer))
	if answer.Err != "" {
		u.T.Fatalf("%s: %s", method, answer.Err)
	}
	return answer
}

// nomad runs the program as the plugin of a Nomad client, and returns the path of the volume.
func (u upgraded) nomad(operation string) string {
	u.T.Helper()
	plugin := filepath.Join(u.T.TempDir(), "csi-volmgr-nomad")
	of := u.program
	if of == "" {
		of = program
	}
	must(u.T, os.Symlink(of, plugin))
	cmd := exec.CommandContext(u.T.Context(), plugin, operation)
	cmd.Env = append(os.Environ(), "DHV_OPERATION="+operation, "DHV_VOLUME_ID=7f3a", "DHV_CAPACITY_MIN_BYTES=1048576",
		`DHV_PARAMETERS={"class":"class"}`, "VOLMGR_SOCKET="+u.Socket)
	out, err := cmd.Output()
	if err != nil {
		u.T.Fatalf("nomad %s: %v\n%s", operation, err, out)
	}
	var answer struct{ Path string }
	must(u.T, json.Unmarshal(out, &answer))
	return answer.Path
}

// disk is a PersistentVolume of a directory of the host.
func (u upgraded) disk(name string) string {
	return "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: " + name + "}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], " +
		"persistentVolumeReclaimPolicy: Retain, storageClassName: " + name + ", hostPath: {path: " + filepath.Join(u.Dir, "disks", name) + "}}"
}

// inSpace is a claim, which names a volume or has one of the class chosen for it.
func inSpace(namespace, name, class, volume string) string {
	return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {namespace: " + namespace + ", name: " + name + "}\nspec: {storageClassName: " + class +
		", volumeName: \"" + volume + "\", accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}"
}

func podIn(namespace, name, claim string) string {
	return strings.Replace(harness.Pod(name, fromClaim(claim)), "metadata: {name: ", "metadata: {namespace: "+namespace+", name: ", 1)
}

// hasData waits until a pod is mounted, and compares the file of its volume.
func (u upgraded) hasData(namespace, pod, text string) {
	u.T.Helper()
	u.Do("", "wait", "pod", pod, "-n", namespace)
	mounts, err := u.API.Mounts(u.T.Context(), namespace, pod)
	must(u.T, err)
	if text != "" {
		u.wantFile(filepath.Join(mounts[0].HostPath, "f"), text)
	}
}

// calls are those that make or take something.
func (u upgraded) calls() []string {
	calls := u.nodeCalls()
	for _, e := range u.events("") {
		if e.Event == csistrict.EventBegin && (strings.HasPrefix(e.Call, "Create") || strings.HasPrefix(e.Call, "Delete")) {
			calls = append(calls, e.Call)
		}
	}
	return calls
}

// names lists what users know their things by.
func (u upgraded) names() string {
	var all strings.Builder
	for _, kind := range []string{"pv", "pvc", "snapshots", "schedules"} {
		for line := range strings.Lines(u.Do("", "get", kind, "-A")) {
			fields := strings.Fields(line)
			all.WriteString(kind + " " + strings.Join(fields[:min(2, len(fields))], " ") + "\n")
		}
	}
	return all.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
