package file

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// limitEnv is the environment variable that names the limit of inotify for the test's own process.
const limitEnv = "FILE_TEST_LIMIT"

// Other programs may have taken every inotify watch or instance of the node. The daemon goes on, and finds manifests by
// reading the directory.
func TestWithoutInotifyManifestsAreStillRead(t *testing.T) {
	if limit := os.Getenv(limitEnv); limit != "" {
		name, value, _ := strings.Cut(limit, "=")
		withoutInotify(t, "/proc/sys/user/"+name, value)
		return
	}
	for _, limit := range []string{"max_inotify_watches=0", "max_inotify_watches=1", "max_inotify_instances=0"} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel() // each waits for the next regular reading
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWithoutInotifyManifestsAreStillRead$", "-test.v")
			c.Env = append(os.Environ(), limitEnv+"="+limit)
			ids := []syscall.SysProcIDMap{{Size: 1 << 16}}
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: ids, GidMappings: ids}
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// withoutInotify runs in a user namespace of its own, whose limits are no other program's.
func withoutInotify(t *testing.T, limit, value string) {
	must(t, os.WriteFile(limit, []byte(value), 0))
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(config("a", "1")), 0o644))
	r, stop := start(t, Config{Dir: dir})
	r.has("a")
	r.problem("", "no inotify watch left")
	r.write("b.yaml", config("b", "1"))
	r.has("a", "b")
	stop()
}
