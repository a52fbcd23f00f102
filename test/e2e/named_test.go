package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// host runs a program of the host, which must succeed.
func host(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// mount(8) mounts a volume of any driver by type csi. The volume stays while the kernel
// shows that mount, even if the daemon dies, and is removed when it is unmounted.
func TestMountHelper(t *testing.T) {
	harness.MountHelper(t, program)
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class())
	srv := n.Path("srv")
	if err := os.Mkdir(srv, 0o755); err != nil {
		t.Fatal(err)
	}
	options := "socket=" + n.Socket + ",class=class,size=64Mi,uid=1234,mode=0750,nodev"
	host(t, "mount", "-t", "csi", "-o", options, "default/data", srv)
	table := host(t, "findmnt", "--noheadings", "--output", "OPTIONS", "--mountpoint", srv)
	if !strings.Contains(table, "nodev") || !strings.Contains(table, "rw") {
		t.Errorf("mounted with %s", table)
	}
	if left, err := os.ReadDir(srv); err != nil || len(left) != 0 {
		t.Errorf("a new volume is not empty: %v, %v", left, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(srv, &st); err != nil || st.Uid != 1234 || st.Mode&0o777 != 0o750 {
		t.Errorf("owner %d, mode %o, %v", st.Uid, st.Mode&0o777, err)
	}
	write(t, filepath.Join(srv, "f"), "of data")
	staged := n.driver.proxy.count("NodeStageVolume")

	// The daemon dies. The next one has no count of the volume's users, and looks for its
	// mounts.
	n.daemon.Kill()
	n.start()
	n.DriverUp(n.driver.kind.name)
	n.Eventually("explain to say who has it", func() bool {
		said := n.CLI("", "explain", "pod", "mount.default.data")
		return strings.Contains(said.Stdout, "the mount at "+srv)
	})
	wantFile(t, filepath.Join(srv, "f"), "of data")
	if r := n.CLI("", "volume", "remove", "default/data"); r.Code == 0 || !strings.Contains(r.Stderr, "the mount at "+srv) {
		t.Errorf("removed while it is mounted: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if got := n.driver.proxy.count("NodeStageVolume"); got != staged {
		t.Errorf("%d calls of NodeStageVolume, want %d", got, staged)
	}
	host(t, "umount", srv)
	n.NoVolumes()

	// A line of fstab mounts the volume, which exists already, with the line's flags.
	fstab := n.Path("fstab")
	write(t, fstab, "default/data "+srv+" csi ro,_netdev,nofail,socket="+n.Socket+",timeout=1m 0 0\n")
	host(t, "mount", "--fstab", fstab, srv)
	wantFile(t, filepath.Join(srv, "f"), "of data")
	if err := os.WriteFile(filepath.Join(srv, "g"), nil, 0o600); err == nil {
		t.Error("a read-only mount is written to")
	}
	host(t, "umount", srv)
	n.NoVolumes()
	said := n.Do("", "volume", "remove", "default/data")
	if !strings.Contains(said, "is kept with its data") {
		t.Errorf("volume remove says %q", said)
	}
	if got := n.driver.proxy.count("DeleteVolume"); got != 0 {
		t.Errorf("%d calls of DeleteVolume", got)
	}
	n.Do("", "delete", "pvc", "data", "--data")
	n.nothingLeft()
}

func TestMountHelperSaysWhatIsWrong(t *testing.T) {
	harness.MountHelper(t, program)
	n := newNode(t, kinds()[0])
	srv := n.Path("srv")
	if err := os.Mkdir(srv, 0o755); err != nil {
		t.Fatal(err)
	}
	n.Apply(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: away}
provisioner: away.example.com
`)
	for name, tc := range map[string]struct {
		spec, options string
		code          int
		words         []string
	}{
		"a driver that is not up": {
			"default/x", "class=away,timeout=3s", 32,
			[]string{"volume default/x", "claim default/x", "driver away.example.com is not registered", "csi-volmgr get drivers"},
		},
		"a claim that is not there": {"default/nope", "", 32, []string{"claim default/nope not found"}},
		"a class that is not there": {"default/x", "class=fast", 32, []string{"StorageClass fast not found"}},
		"an unknown flag":           {"default/x", "speedy", 1, []string{"unknown option speedy"}},
		"an unknown option":         {"default/x", "colour=red", 32, []string{"option colour is not known"}},
		"a time that is none":       {"default/x", "timeout=soon", 1, []string{"option timeout", "5m"}},
		"a driver alone":            {"default/x", "driver=d", 32, []string{"option handle is missing"}},
	} {
		options := strings.Trim("socket="+n.Socket+","+tc.options, ",")
		out, err := exec.Command("mount", "-t", "csi", "-o", options, tc.spec, srv).CombinedOutput()
		code := 0
		if exit, ok := err.(*exec.ExitError); ok {
			code = exit.ExitCode()
		}
		if code != tc.code {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, tc.code, out)
		}
		for _, w := range tc.words {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s: %q lacks %q", name, out, w)
			}
		}
	}
	if left := n.Do("", "volume", "list"); strings.Contains(left, "default/x") {
		t.Errorf("left behind:\n%s", left)
	}
	n.nothingLeft()
}

// A Nomad client makes a host volume, asks for it again at each start, and deletes it.
func TestNomadHostVolume(t *testing.T) {
	t.Parallel()
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class())
	plugin := n.Path("csi-volmgr-nomad")
	if err := os.Symlink(program, plugin); err != nil {
		t.Fatal(err)
	}
	parameters, err := json.Marshal(map[string]string{"class": "class", "reclaim": "Delete"})
	if err != nil {
		t.Fatal(err)
	}
	do := func(operation string) (path string, bytes int64) {
		t.Helper()
		cmd := exec.Command(plugin, operation)
		cmd.Env = append(os.Environ(), "DHV_OPERATION="+operation, "DHV_VOLUME_ID=7f3a", "DHV_CAPACITY_MIN_BYTES=67108864",
			"DHV_PARAMETERS="+string(parameters), "VOLMGR_SOCKET="+n.Socket)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", operation, err, errs.String())
		}
		var answer struct {
			Path  string
			Bytes int64
		}
		if len(out) > 0 {
			if err := json.Unmarshal(out, &answer); err != nil {
				t.Fatalf("%s answers %q: %v", operation, out, err)
			}
		}
		return answer.Path, answer.Bytes
	}
	do("fingerprint")
	path, bytes := do("create")
	if bytes < 64<<20 {
		t.Errorf("%d bytes", bytes)
	}
	write(t, filepath.Join(path, "f"), "of nomad")
	n.daemon.Kill()
	n.start()
	n.DriverUp(n.driver.kind.name)
	again, _ := do("create")
	if again != path {
		t.Errorf("at first at %s, then at %s", path, again)
	}
	wantFile(t, filepath.Join(path, "f"), "of nomad")
	if got := n.driver.proxy.count("CreateVolume"); got != 1 {
		t.Errorf("%d calls of CreateVolume", got)
	}
	do("delete")
	do("delete") // a client repeats it if the first answer was lost
	if got := n.driver.proxy.count("DeleteVolume"); got != 1 {
		t.Errorf("%d calls of DeleteVolume", got)
	}
	if lines := n.Do("", "get", "pods", "-A"); slices.Contains(strings.Fields(lines), "nomad.nomad-7f3a") {
		t.Errorf("left: %s", lines)
	}
	n.nothingLeft()
}
