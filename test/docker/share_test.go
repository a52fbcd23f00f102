//go:build docker

package docker

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The end of one user does not end the others' use, whatever the engine reports.
func TestUsersShareAVolume(t *testing.T) {
	engines(t, func(t *testing.T, r *rig, engine string) {
		r.volumeCreate(engine, "db", "size=64Mi")
		for _, name := range []string{"one", "two", "three", "four"} {
			r.must(engine, "run", "-d", "--name", name, "-v", "db:/data", busybox, "sh", "-c", "while :; do echo x > /data/"+name+"; done")
		}
		check := func(when, container string) {
			t.Helper()
			r.must(engine, "exec", container, "sh", "-c", "echo "+when+" > /data/said && sync")
			if got := r.must(engine, "exec", container, "cat", "/data/said"); got != when {
				t.Errorf("%s: got %q", when, got)
			}
			if n := r.called("NodeUnpublishVolume"); n != 0 || len(r.volumeMounts()) == 0 {
				t.Fatalf("%s: %d unmounts, mounts %q: a container has the volume", when, n, r.volumeMounts())
			}
		}
		r.must(engine, "stop", "-t", "0", "one")
		check("stopped", "two")
		for range 10 { // moby#37314: an id that is mounted is mounted and unmounted again
			r.must(engine, "cp", "/bin/busybox", "two:/data/copied")
		}
		r.lingered("db")
		check("copied", "two")
		pid := r.pid(engine, "three")
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r.Eventually("the killed container to end", func() bool { return !alive(pid) })
		check("killed", "two")
		r.must(engine, "rm", "-f", "four") // while it writes
		r.lingered("db")
		check("removed", "two")
		if n := r.called("NodeStageVolume"); n != 1 {
			t.Errorf("staged %d times", n)
		}
		r.must(engine, "stop", "-t", "0", "two")
		r.must(engine, "rm", "-f", "one", "two", "three")
		r.nothingMounted()
	})
}

// The directory that users get is empty, without even the lost+found of a new ext4, so the engine
// copies the image's files to it.
func TestVolumeIsEmptyForImages(t *testing.T) {
	engines(t, func(t *testing.T, r *rig, engine string) {
		r.volumeCreate(engine, "db")
		if got := r.must(engine, "run", "--rm", "-v", "db:/data", busybox, "ls", "-A", "/data"); got != "" {
			t.Errorf("a new volume has %q", got)
		}
		if got := r.must(engine, "run", "--rm", "-v", "db:/app", busybox, "ls", "-A", "/app"); got != "shipped" {
			t.Errorf("the image's content is not there, but %q", got)
		}
		r.volumeCreate(engine, "root", "subdir=.")
		if got := r.must(engine, "run", "--rm", "-v", "root:/data", busybox, "ls", "-A", "/data"); got != "lost+found" {
			t.Errorf("the root of a new volume has %q", got)
		}
		r.volumeCreate(engine, "owned", "uid=70", "gid=71", "mode=02750")
		if got := r.must(engine, "run", "--rm", "-v", "owned:/data", busybox, "stat", "-c", "%u %g %a", "/data"); got != "70 71 2750" {
			t.Errorf("owner and mode are %q, want 70 71 2750", got)
		}
	})
}
