//go:build docker

package docker

import (
	"os"
	"strings"
	"testing"
)

// typed is a Compose file as people write it; MODE is the mode.
const typed = `version: "3.8"
services:
  web:
    image: ` + busybox + `
    network_mode: none
    command: ["stat", "-c", "%a", "/data"]
    volumes: ["data:/data"]
volumes:
  data: {driver: csi, driver_opts: {size: 64Mi, mode: MODE}}
`

// What people type at Docker: a volume without a name leaves nothing, a mode that Compose turned into another number is refused
// with what is right, and a size that the driver cannot serve is refused at once, and leaves nothing.
func TestWhatIsTypedAtDocker(t *testing.T) {
	r := newRig(t)
	r.startDocker()
	for range 2 {
		r.must("docker", "run", "--rm", "--volume-driver", "csi", "-v", "/data", busybox, "sh", "-c", "echo of a container > /data/f")
	}
	if made, deleted := r.called("CreateVolume"), r.called("DeleteVolume"); made != 2 || deleted != 2 {
		t.Errorf("two anonymous volumes: %d calls of CreateVolume, %d of DeleteVolume", made, deleted)
	}
	compose := func(mode string) (out string, ok bool) {
		t.Helper()
		if err := os.WriteFile(r.Path("typed.yml"), []byte(strings.Replace(typed, "MODE", mode, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		got := r.run("docker-compose", "-p", "shop", "-f", r.Path("typed.yml"), "up")
		return got.Stdout + got.Stderr, got.Code == 0
	}
	if said, ok := compose("0770"); ok || !strings.Contains(said, `mode: "0770"`) && !strings.Contains(said, `mode: \"0770\"`) {
		t.Errorf("a mode without quotes: %v\n%s", ok, said)
	}
	if said, ok := compose(`"0770"`); !ok || !strings.Contains(said, "770") {
		t.Errorf("a mode in quotes: %v\n%s", ok, said)
	}
	r.must("docker-compose", "-p", "shop", "-f", r.Path("typed.yml"), "down", "-v")
	got := r.run("docker", "volume", "create", "-d", "csi", "-o", "size=7Ei", "big")
	if got.Code == 0 || !strings.Contains(got.Stderr, "no volume was made") {
		t.Errorf("a size that the driver refuses: %d %s%s", got.Code, got.Stdout, got.Stderr)
	}
	if left := r.must("docker", "volume", "ls", "-q"); left != "" {
		t.Errorf("left: %q", left)
	}
	r.nothingMounted()
}

// podman kube play passes the annotations of a claim, and of its spec nothing.
func TestKubePlay(t *testing.T) {
	r := newRig(t)
	r.startPodman()
	if err := os.WriteFile(r.Path("claim.yaml"), []byte(`apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: db
  annotations:
    volume.podman.io/driver: csi
    volume.podman.io/mount-options: "class=local,size=64Mi,mode=0750"
    volume.podman.io/uid: "70"
    volume.podman.io/gid: "71"
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 96Mi}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.must("podman", "kube", "play", r.Path("claim.yaml"))
	if got := r.must("podman", "run", "--rm", "-v", "db:/data", busybox, "stat", "-c", "%u %g %a", "/data"); got != "70 71 750" {
		t.Errorf("owner and mode are %q, want 70 71 750", got)
	}
	if got := r.Do("", "get", "pvc", "db", "-o", "jsonpath={.requestedBytes}"); got != "67108864" {
		t.Errorf("the claim asks for %s bytes", got)
	}
	r.must("podman", "volume", "rm", "db")
}
