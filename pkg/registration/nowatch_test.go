package registration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// limitEnv is the environment variable that names the limit of inotify for the test's own process.
const limitEnv = "REGISTRATION_TEST_LIMIT"

// Other programs may have taken every inotify watch or instance of the node. The daemon goes on, and finds sockets by
// reading the directory.
func TestWithoutInotifySocketsStillComeUp(t *testing.T) {
	if limit := os.Getenv(limitEnv); limit != "" {
		name, value, _ := strings.Cut(limit, "=")
		withoutInotify(t, "/proc/sys/user/"+name, value)
		return
	}
	for _, limit := range []string{"max_inotify_watches=1", "max_inotify_instances=0"} {
		t.Run(limit, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWithoutInotifySocketsStillComeUp$", "-test.v")
			c.Env = append(os.Environ(), limitEnv+"="+limit)
			ids := []syscall.SysProcIDMap{{Size: 1 << 16}}
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// withoutInotify runs in a user namespace of its own, whose limits are no other program's.
func withoutInotify(t *testing.T, limit, value string) {
	if err := os.WriteFile(limit, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	serve(t, filepath.Join(dir, "a.sock"), csi("a.example.com"))
	x := start(t, dir)
	x.untilState("a.sock", Up)
	if err := os.Mkdir(x.path("sub"), 0o700); err != nil { // one directory more than can be watched
		t.Fatal(err)
	}
	serve(t, x.path("sub/b.sock"), csi("b.example.com"))
	x.untilState("sub/b.sock", Up)
	x.end()
}
