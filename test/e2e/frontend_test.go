package e2e

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
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// withPlugin starts a node that serves the volume plugin, too, on the socket plugin.sock.
func withPlugin(t *testing.T, k kind) *node {
	t.Helper()
	n := newPlace(t)
	n.flags = []string{"--volume-plugin", "--volume-plugin-socket", n.Path("plugin.sock")}
	n.driver = newDriver(n, k)
	n.start()
	n.DriverUp(k.name)
	n.Apply(n.driver.class())
	return n
}

// plugin sends a request of Docker's volume plugin protocol, and returns the answer's body.
func (n *node) plugin(method string, fields map[string]any) string {
	n.T.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.Path("plugin.sock"))
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	in, err := json.Marshal(fields)
	if err != nil {
		n.T.Fatal(err)
	}
	r, err := http.NewRequestWithContext(n.T.Context(), http.MethodPost, "http://plugin/"+method, bytes.NewReader(in))
	if err != nil {
		n.T.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		n.T.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		n.T.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// pluginCreate creates a volume of Docker of the class of the test.
func (n *node) pluginCreate(name string) {
	n.T.Helper()
	opts := map[string]string{"class": "class", "size": "64Mi"}
	if said := n.plugin("VolumeDriver.Create", map[string]any{"Name": name, "Opts": opts}); said != "{}" {
		n.T.Fatalf("create %s: %s", name, said)
	}
}

// pluginMount mounts a volume of Docker and returns the path; refused is the error.
func (n *node) pluginMount(name, id string) (path, refused string) {
	n.T.Helper()
	var answer struct{ Mountpoint, Err string }
	said := n.plugin("VolumeDriver.Mount", map[string]any{"Name": name, "ID": id})
	if err := json.Unmarshal([]byte(said), &answer); err != nil {
		n.T.Fatalf("mount %s: %s", name, said)
	}
	return answer.Mountpoint, answer.Err
}

func (n *node) pluginUnmount(name, id string) {
	n.T.Helper()
	if said := n.plugin("VolumeDriver.Unmount", map[string]any{"Name": name, "ID": id}); said != "{}" {
		n.T.Errorf("unmount %s: %s", name, said)
	}
}

// nomad runs an operation of Nomad's host volume plugin.
func (n *node) nomad(operation, id string) (path string, err error) {
	n.T.Helper()
	plugin := n.Path("csi-volmgr-nomad")
	if err := os.Symlink(program, plugin); err != nil && !os.IsExist(err) {
		n.T.Fatal(err)
	}
	cmd := exec.Command(plugin, operation)
	cmd.Env = append(os.Environ(), "DHV_OPERATION="+operation, "DHV_VOLUME_ID="+id, "DHV_CAPACITY_MIN_BYTES=67108864",
		`DHV_PARAMETERS={"class":"class","reclaim":"Delete"}`, "VOLMGR_SOCKET="+n.Socket)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		n.T.Logf("nomad %s: %s", operation, said.String())
		return said.String(), err
	}
	var answer struct{ Path string }
	if len(out) > 0 {
		if err := json.Unmarshal(out, &answer); err != nil {
			n.T.Fatalf("%s answers %q: %v", operation, out, err)
		}
	}
	return answer.Path, nil
}

// What Docker and podman do to each volume that the plugin lists, to get, mount and remove it, reaches no volume of Nomad
// or mount -t csi, and these reach none of Docker's. The operator reaches all of them.
func TestAFrontEndHasItsOwnVolumes(t *testing.T) {
	t.Parallel()
	n := withPlugin(t, kinds()[0])
	path, err := n.nomad("create", "7f3a")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "f"), "of Nomad")
	_, err = n.API.CreateNamed(t.Context(), server.NamedRequest{ // as mount.csi does
		Name: "default/data", FrontEnd: "mount", Options: map[string]string{"class": "class", "size": "64Mi", "reclaim": "Delete"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.pluginCreate("db")
	n.pluginCreate("nomad-own") // Docker's, whatever its name
	listed := n.plugin("VolumeDriver.List", nil)
	if want := `{"Volumes":[{"Name":"db"},{"Name":"nomad-own"}]}`; listed != want {
		t.Errorf("the plugin lists %s, want %s", listed, want)
	}
	for name, whose := range map[string]string{"nomad-7f3a": "Nomad's volume 7f3a", "default/data": "the mount of type csi of default/data"} {
		if said := n.plugin("VolumeDriver.Get", map[string]any{"Name": name}); said != `{"Err":"no such volume: `+name+`"}` {
			t.Errorf("get %s: %s", name, said)
		}
		for _, method := range []string{"VolumeDriver.Remove", "VolumeDriver.Mount", "VolumeDriver.Create"} {
			fields := map[string]any{"Name": name}
			if strings.HasSuffix(method, "Mount") {
				fields["ID"] = "c1"
			}
			if said := n.plugin(method, fields); !strings.Contains(said, whose) {
				t.Errorf("%s %s: %s, want an error with %q", method, name, said, whose)
			}
		}
	}
	wantFile(t, filepath.Join(path, "f"), "of Nomad")
	if said, err := n.nomad("delete", "own"); err == nil || !strings.Contains(said, "the volume nomad-own of Docker or podman") {
		t.Errorf("Nomad deletes Docker's volume: %s", said)
	}
	if said, err := n.nomad("create", "own"); err == nil || !strings.Contains(said, "option claim=nomad-own, subdir=_data") {
		t.Errorf("Nomad takes Docker's volume: %s", said)
	}

	// The log of requests and the audit log name the front end, and the process.
	n.plugin("VolumeDriver.Remove", map[string]any{"Name": "db"})
	n.Do("", "volume", "remove", "default/data")
	if _, err := n.nomad("delete", "7f3a"); err != nil {
		t.Error(err)
	}
	for file, lines := range map[string][]string{
		"objects.log": {`"verb":"remove volume","object":"db","detail":"for front end docker"`, `"object":"nomad-7f3a","detail":"for front end nomad"`},
		"audit.log": {
			`docker volume db was removed: front end docker asked`, `mount volume default/data was removed: the operator asked`,
			`nomad volume nomad-7f3a was removed: front end nomad asked`, `"program":"csi-volmgr-noma"`,
		},
	} {
		log, err := os.ReadFile(n.Path("state/" + file))
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range lines {
			if !strings.Contains(string(log), words) {
				t.Errorf("%s lacks %s:\n%s", file, words, log)
			}
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("Nomad's volume stays: %v", err)
	}
}

// A volume of Docker is mounted at a directory of the host, too, by a line of fstab that names its claim.
func TestMountOfTheClaimOfDockersVolume(t *testing.T) {
	t.Parallel()
	n := withPlugin(t, kinds()[0])
	n.pluginCreate("db")
	inside, refused := n.pluginMount("db", "c1")
	if refused != "" {
		t.Fatal(refused)
	}
	write(t, filepath.Join(inside, "f"), "of Docker")
	_, err := n.API.CreateNamed(t.Context(), server.NamedRequest{
		Name: "default/db", FrontEnd: "mount", Options: map[string]string{"claim": "db", "subdir": "_data"},
	})
	if err != nil {
		t.Fatal(err)
	}
	path, err := n.API.MountNamed(t.Context(), "mount", "default/db")
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(path, "f"), "of Docker")
	n.pluginUnmount("db", "c1")
	if said := n.plugin("VolumeDriver.Remove", map[string]any{"Name": "db"}); !strings.Contains(said, "mount.default.db") {
		t.Errorf("removed under the mount: %s", said)
	}
}
