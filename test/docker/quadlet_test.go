//go:build docker

package docker

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// The units that podman's generator makes from examples/quadlet start a container with its volume,
// stop it, and start it again with its data. There is no systemd: the test runs the units'
// commands.
func TestQuadletExample(t *testing.T) {
	harness.MountHelper(t, program)
	r := newRig(t)
	r.startPodman()
	units := r.generate()
	for _, want := range []string{"Requires=csi-volmgr-drain.service", "After=csi-volmgr-drain.service", "Requires=db-volume.service", "After=db-volume.service"} {
		if !strings.Contains(units, "\n"+want+"\n") {
			t.Errorf("%s is not in the units:\n%s", want, units)
		}
	}
	var starts [][]string // of the volume's unit, and of the container's
	for line := range strings.Lines(units) {
		if words, ok := strings.CutPrefix(line, "ExecStart=/usr/bin/podman "); ok {
			starts = append(starts, strings.Fields(words))
		}
	}
	if len(starts) != 2 {
		t.Fatalf("the units have %d commands:\n%s", len(starts), units)
	}
	volume, container := r.here(starts[0]), r.here(starts[1])
	container = append(container, "sh", "-c", "cd /var/lib/postgresql/data; echo start >> log; cat log; sleep 1000")
	r.podman(volume...)
	for n := 1; n <= 2; n++ {
		r.podman(container...)
		r.Eventually("the container to start", func() bool {
			return r.podman("logs", "db") == strings.TrimSpace(strings.Repeat("start\n", n))
		})
		r.podman("rm", "-v", "-f", "-t", "0", "db")
		r.nothingMounted()
	}
	if n := r.called("CreateVolume"); n != 1 {
		t.Errorf("CreateVolume was called %d times", n)
	}
}

// generate returns the units of examples/quadlet.
func (r *rig) generate() string {
	r.T.Helper()
	examples, err := filepath.Abs("../../examples/quadlet")
	if err != nil {
		r.T.Fatal(err)
	}
	cmd := exec.Command(quadlet, "-dryrun")
	cmd.Env = append(r.env, "QUADLET_UNIT_DIRS="+examples)
	out, err := cmd.Output()
	if err != nil {
		r.T.Fatalf("generate units of %s: %v", examples, err)
	}
	return string(out)
}

// here adapts a command to this machine: its podman is older than the generator, no systemd starts
// it, there is only one image, and csi-volmgr's socket has another path.
func (r *rig) here(words []string) (out []string) {
	for _, w := range words {
		switch {
		case w == "--ignore", w == "--cgroups=split", w == "--sdnotify=conmon", strings.HasPrefix(w, "--cidfile="):
			continue
		case strings.HasPrefix(w, "o="):
			w = strings.Replace(w, "class=standard", "class=local", 1) + ",socket=" + r.Socket
		case strings.HasPrefix(w, "docker.io/"):
			w = busybox
		}
		out = append(out, w)
	}
	return out
}
