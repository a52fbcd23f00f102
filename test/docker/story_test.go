//go:build docker

package docker

import (
	"os"
	"os/exec"
	"path/filepath"
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

// The commands of docs/docker.md and docs/podman.md work exactly as written there.
func TestStoriesOfTheDocuments(t *testing.T) {
	engines(t, func(t *testing.T, r *rig, engine string) {
		r.must(engine, "tag", busybox, "busybox")
		if out := r.story(engine); !strings.Contains(out, "\nhello\n") {
			t.Errorf("the story says\n%s", out)
		}
	})
}

// story runs a script of testdata in the rig's directory, with wrappers so that the script calls
// the engines and csi-volmgr without the rig's flags. It returns the output.
func (r *rig) story(name string) string {
	r.T.Helper()
	script, err := filepath.Abs("testdata/" + name + ".sh")
	if err != nil {
		r.T.Fatal(err)
	}
	if err := os.MkdirAll(r.Path("bin"), 0o700); err != nil {
		r.T.Fatal(err)
	}
	for program, words := range map[string][]string{
		"docker": r.command("docker").Args, "podman": r.command("podman").Args, "csi-volmgr": {r.Program, "--socket", r.Socket},
	} {
		wrapper := "#!/bin/sh\nexec " + strings.Join(words, " ") + " \"$@\"\n"
		if err := os.WriteFile(r.Path("bin/"+program), []byte(wrapper), 0o700); err != nil {
			r.T.Fatal(err)
		}
	}
	cmd := exec.Command("/bin/sh", script)
	cmd.Dir, cmd.Env = r.Dir, append(r.env, "PATH="+r.Path("bin")+":"+debianPath)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.T.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}
