//go:build docker

package docker

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestDataOutlivesItsContainers(t *testing.T) {
	engines(t, func(t *testing.T, r *rig, engine string) {
		r.volumeCreate(engine, "db", "size=64Mi")
		r.must(engine, "run", "--rm", "-v", "db:/data", busybox, "sh", "-c", "echo kept > /data/f")
		r.must(engine, "run", "-d", "--name", "one", "-v", "db:/data", busybox, "sleep", "1000")
		if got := r.must(engine, "exec", "one", "cat", "/data/f"); got != "kept" {
			t.Errorf("got %q", got)
		}
		r.must(engine, "rm", "-f", "one")
		if got := r.must(engine, "run", "--rm", "-v", "db:/data", busybox, "cat", "/data/f"); got != "kept" {
			t.Errorf("got %q", got)
		}
		r.nothingMounted()
		r.must(engine, "volume", "rm", "db")
		if strings.Contains(r.must(engine, "volume", "ls", "-q"), "db") {
			t.Error("the volume is listed after its removal")
		}
	})
}

// The stories of docs/docker.md and docs/podman.md go as they stand there.
func TestStoriesOfTheDocuments(t *testing.T) {
	engines(t, func(t *testing.T, r *rig, engine string) {
		r.must(engine, "tag", busybox, "busybox")
		words := r.command(engine).Args
		wrapper := "#!/bin/sh\nexec " + strings.Join(words, " ") + " \"$@\"\n"
		if err := os.MkdirAll(r.Path("bin"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.Path("bin/"+engine), []byte(wrapper), 0o700); err != nil {
			t.Fatal(err)
		}
		story := exec.Command("/bin/sh", "testdata/"+engine+".sh")
		story.Env = append(r.env, "PATH="+r.Path("bin")+":"+debianPath)
		out, err := story.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\nhello\n") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
