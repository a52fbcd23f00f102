//go:build docker

package docker

import (
	"os/exec"
	"testing"
)

// While its container runs, a volume is backed up through a frozen snapshot: a container of its own
// reads a volume made from the snapshot, as docs/docker.md shows.
func TestBackupOfAVolumeInUse(t *testing.T) {
	r := newRig(t)
	r.startDocker()
	r.docker("tag", busybox, "busybox")
	r.volumeCreate("docker", "db", "size=64Mi")
	r.docker("run", "-d", "--name", "user", "-v", "db:/data", busybox, "sh", "-c", "echo kept > /data/f; sleep 1000")
	r.Eventually("the container to write", func() bool {
		return r.run("docker", "exec", "user", "cat", "/data/f").Stdout == "kept\n"
	})
	r.story("backup")
	got, err := exec.Command("tar", "-xOf", r.Path("monday.tar"), "./f").CombinedOutput()
	if err != nil || string(got) != "kept\n" {
		t.Errorf("the backup has %q, %v", got, err)
	}
	r.docker("exec", "user", "sh", "-c", "echo later > /data/f")
	r.docker("rm", "-f", "user")
	r.docker("volume", "rm", "db")
	r.nothingMounted()
}
