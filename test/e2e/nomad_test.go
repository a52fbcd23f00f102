package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// nomadOf runs an operation of Nomad's host volume plugin for a volume of a namespace of Nomad, whose author gives the
// parameters.
func (n *node) nomadOf(namespace, operation, id, parameters string) (path, refused string) {
	n.T.Helper()
	plugin := n.Path("csi-volmgr-nomad")
	if err := os.Symlink(program, plugin); err != nil && !os.IsExist(err) {
		n.T.Fatal(err)
	}
	least := "67108864"
	if strings.Contains(parameters, `"claim"`) {
		least = "0" // a claim that is there has its size
	}
	cmd := exec.Command(plugin, operation)
	cmd.Env = append(os.Environ(), "DHV_OPERATION="+operation, "DHV_VOLUME_ID="+id, "DHV_NAMESPACE="+namespace,
		"DHV_CAPACITY_MIN_BYTES="+least, "DHV_PARAMETERS="+parameters, "VOLMGR_SOCKET="+n.Socket)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", said.String()
	}
	_, path, _ = strings.Cut(string(out), `"path":"`)
	path, _, _ = strings.Cut(path, `"`)
	return path, ""
}

// ownerOf returns the owner and the mode of a path.
func ownerOf(t *testing.T, path string) (uid uint32, mode uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid, st.Mode & 0o7777
}

// The author of a Nomad volume reads no other claim's data, whatever the parameters are, and changes the owner of none. An
// operator's rule names what is allowed.
func TestTheAuthorOfANomadVolumeReachesItsOwnClaims(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), bankClaim, bankPod)
		n.Do("", "wait", "pod", "web", "-n", "bank", "--timeout=1m")
		mounts, err := n.API.Mounts(t.Context(), "bank", "web")
		if err != nil {
			t.Fatal(err)
		}
		secret := mounts[0].HostPath
		write(t, filepath.Join(secret, "f"), "bank-secret")
		uid, mode := ownerOf(t, secret)
		handle := n.Do("", "get", "pv", n.Do("", "get", "pvc", "data", "-n", "bank", "-o", "jsonpath={.volume}"), "-o", "jsonpath={.handle}")

		for parameters, setting := range map[string]string{
			`{"namespace":"bank","claim":"data","uid":"65534","mode":"0777"}`:                    "--nomad-allow=evil/namespace=bank",
			`{"namespace":"bank","claim":"data"}`:                                                "--nomad-allow=evil/namespace=bank",
			`{"claim":"data"}`:                                                                   "--nomad-allow=evil/namespace=default",
			`{"driver":"` + n.driver.name + `","handle":"` + handle + `"}`:                       "--nomad-allow=evil/driver=" + n.driver.name,
			`{"driver":"` + n.driver.name + `","handle":"` + handle + `","attribute.a":"b"}`:     "--nomad-allow=evil/driver=" + n.driver.name,
			`{"driver":"` + n.driver.name + `","handle":"` + handle + `","namespace":"default"}`: "--nomad-allow=evil/namespace=default",
		} {
			if path, said := n.nomadOf("evil", "create", "666", parameters); path != "" || !strings.Contains(said, setting) {
				t.Errorf("%s: at %q, said %q, want %s", parameters, path, said, setting)
			}
		}
		if u, m := ownerOf(t, secret); u != uid || m != mode {
			t.Errorf("the directory of bank's claim is now of %d, %o", u, m)
		}

		// Its own volume is a claim of the namespace that follows from Nomad's, and no other namespace of Nomad reaches it.
		path, said := n.nomadOf("Evil", "create", "7f3a", `{"class":"class","reclaim":"Delete","uid":"999","mode":"0700"}`)
		if u, m := ownerOf(t, path); said != "" || u != 999 || m != 0o700 {
			t.Errorf("its own: %q, owner %d, mode %o", said, u, m)
		}
		list := n.Do("", "volume", "list")
		if !strings.Contains(list, "nomad--") || !strings.Contains(list, "/nomad-7f3a") {
			t.Errorf("volume list:\n%s", list)
		}
		for _, operation := range []string{"create", "delete"} {
			if at, said := n.nomadOf("evil", operation, "7f3a", `{"class":"class","reclaim":"Delete","uid":"999","mode":"0700"}`); at != "" || !strings.Contains(said, "another namespace of Nomad") {
				t.Errorf("%s for another namespace: at %q, said %q", operation, at, said)
			}
		}
		write(t, filepath.Join(path, "f"), "of Evil")
		if _, said := n.nomadOf("Evil", "delete", "7f3a", ""); said != "" {
			t.Errorf("delete: %s", said)
		}

		// The operator's rules, for this namespace of Nomad alone; the owner needs a rule of its own.
		n.daemon.Kill()
		n.flags = append(n.flags, "--nomad-allow=trusted/namespace=bank")
		n.start()
		n.DriverUp(n.driver.name)
		share := `{"namespace":"bank","claim":"data"}`
		if at, said := n.nomadOf("evil", "create", "666", share); at != "" || !strings.Contains(said, "--nomad-allow=evil/") {
			t.Errorf("another namespace: at %q, said %q", at, said)
		}
		if _, said := n.nomadOf("trusted", "create", "1", `{"namespace":"bank","claim":"data","mode":"0777"}`); !strings.Contains(said, "--nomad-allow=trusted/owner") {
			t.Errorf("the owner: %q", said)
		}
		shared, said := n.nomadOf("trusted", "create", "1", share)
		if said != "" {
			t.Fatal(said)
		}
		wantFile(t, filepath.Join(shared, "f"), "bank-secret")
		if u, m := ownerOf(t, secret); u != uid || m != mode {
			t.Errorf("the directory of bank's claim is now of %d, %o", u, m)
		}
		if _, said := n.nomadOf("trusted", "delete", "1", ""); said != "" {
			t.Error(said)
		}
		wantFile(t, filepath.Join(secret, "f"), "bank-secret")
		n.Do("", "delete", "pod", "web", "-n", "bank")
		n.NoVolumes()
		n.Do("", "delete", "pvc", "data", "-n", "bank")
		n.nothingLeft()
	})
}

const bankClaim = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: bank}, spec: {storageClassName: class,
  accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}`

const bankPod = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: bank}, spec: {containers: [{name: c, image: x,
  volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}`

// A volume of an earlier version that names another claim, with an owner, goes on at its path. Its directory is no longer
// given away at each start of Nomad's client; a rule brings that back.
func TestUpgradeOfNomadsVolumes(t *testing.T) {
	t.Parallel()
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
	n.Mounted("web")
	write(t, filepath.Join(n.HostPath("web", "data"), "f"), "of data")
	parameters := `{"claim":"data","uid":"999","mode":"0700"}`
	n.daemon.Kill()
	n.flags = append(n.flags, "--nomad-allow=*/namespace=default", "--nomad-allow=*/owner")
	n.start()
	n.DriverUp(n.driver.name)
	path, said := n.nomadOf("default", "create", "1", strings.Replace(parameters, "{", `{"namespace":"default",`, 1))
	if said != "" {
		t.Fatal(said)
	}
	n.daemon.Kill()
	n.flags = n.flags[:len(n.flags)-2]
	j, err := journal.OpenBolt(n.Path("state/state.db"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := j.LoadBucket(t.Context(), "named")
	if err != nil {
		t.Fatal(err)
	}
	was := bytes.Replace(values.Sound["nomad-1"], []byte(`"tenant":"default",`), nil, 1)
	if bytes.Equal(was, values.Sound["nomad-1"]) {
		t.Fatalf("the row: %s", was)
	}
	if err := j.CommitBucket(context.Background(), "named", map[string][]byte{"nomad-1": was}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o750); err != nil { // as the claim's pod may
		t.Fatal(err)
	}
	n.start()
	n.DriverUp(n.driver.name)
	for range 2 {
		again, said := n.nomadOf("default", "create", "1", parameters)
		if again != path {
			t.Fatalf("at %q and then at %q: %s", path, again, said)
		}
	}
	wantFile(t, filepath.Join(path, "f"), "of data")
	if _, mode := ownerOf(t, path); mode != 0o750 {
		t.Errorf("the claim's directory was given away: mode %o", mode)
	}
	if _, said := n.nomadOf("evil", "create", "1", parameters); !strings.Contains(said, "another namespace of Nomad") {
		t.Errorf("another namespace takes it: %q", said)
	}
	n.daemon.Kill()
	n.flags = append(n.flags, "--nomad-allow=default/owner")
	n.start()
	n.DriverUp(n.driver.name)
	if _, said := n.nomadOf("default", "create", "1", parameters); said != "" {
		t.Error(said)
	}
	if _, mode := ownerOf(t, path); mode != 0o700 {
		t.Errorf("with the rule: mode %o", mode)
	}
}
