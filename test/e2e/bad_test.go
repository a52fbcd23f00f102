package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// glance is the pause between looks at things that have no events.
const glance = 20 * time.Millisecond

// wantWords fails the test if text lacks one of the words, or is a message that explains
// nothing.
func wantWords(t *testing.T, what, text string, words ...string) {
	t.Helper()
	for _, w := range append(words, "") {
		if !strings.Contains(text, w) {
			t.Errorf("%s: got %q, want %q in it", what, text, w)
		}
	}
	if strings.Contains(text, "timed out waiting for the condition") || strings.Contains(text, "panic") {
		t.Errorf("%s: got %q, which explains nothing", what, text)
	}
}

// goodPod mounts and deletes a pod with a claim of its own.
func (n *node) goodPod() {
	n.T.Helper()
	n.Apply(n.driver.class(), claim("good", "64Mi", fileSystem, rwo), harness.Pod("good", harness.FromClaim("data", "good"),
		volume{Name: "scratch", Source: "emptyDir: {}"}))
	n.Mounted("good")
	n.DeletePods("good")
}

// apply refuses a bad file as a whole, with one error that names object and field.
func TestBadManifestIsRefusedWhole(t *testing.T) {
	t.Parallel()
	n := newNode(t, kinds()[0])
	long := strings.Repeat("x", 4096)
	scratch := volume{Name: "scratch", Source: "emptyDir: {}"}
	for name, bad := range map[string]struct {
		doc   string
		words []string
	}{
		"malformed YAML":         {"apiVersion: v1\nkind: Pod\nmetadata: {name: bad\n", []string{"not YAML"}},
		"no YAML at all":         {"\x00\x01\x02", nil},
		"unknown field":          {strings.Replace(harness.Pod("bad", scratch), "volumes:", "volums:", 1), []string{"bad", "spec.volums"}},
		"unknown kind of volume": {harness.Pod("bad", volume{Name: "v", Source: "floppy: {}"}), []string{"bad", "floppy"}},
		"unknown kind":           {"apiVersion: v1\nkind: Pood\nmetadata: {name: bad}", []string{"Pood"}},
		"wrong type":             {harness.Pod("bad", volume{Name: "v", Source: "emptyDir: 7"}), []string{"bad", "spec.volumes[0].emptyDir"}},
		"name with ..":           {harness.Pod("..", scratch), []string{"metadata.name"}},
		"name with /":            {harness.Pod("../x", scratch), []string{"metadata.name"}},
		"name with NUL":          {harness.Pod(`"a\0b"`, scratch), []string{"metadata.name"}},
		"name of 4 KiB":          {harness.Pod(long, scratch), []string{"metadata.name"}},
		"uid that leads out":     {strings.Replace(harness.Pod("bad", scratch), "{name: bad}", "{name: bad, uid: ../../x}", 1), []string{"bad", "metadata.uid"}},
		"namespace with /":       {strings.Replace(harness.Pod("bad", scratch), "{name: bad}", "{name: bad, namespace: a/b}", 1), []string{"metadata.namespace"}},
		"volume name with ..":    {harness.Pod("bad", volume{Name: `".."`, Source: "emptyDir: {}"}), []string{"bad", "spec.volumes[0].name"}},
		"volume name of 4 KiB":   {harness.Pod("bad", volume{Name: long, Source: "emptyDir: {}"}), []string{"bad", "spec.volumes[0].name"}},
		"volume with a bad name": {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: ../x}\nspec: {}", []string{"volume", "../x", "metadata.name"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.CLI(manifest(harness.Pod("companion", scratch), bad.doc), "apply", "-f", "-")
			if r.Code != 1 {
				t.Errorf("exit code: got %d, want 1 (%s)", r.Code, r.Stdout)
			}
			wantWords(t, "error", r.Stderr, bad.words...)
			if len(r.Stderr) > 4096 {
				t.Errorf("error: got %d bytes, too many to read", len(r.Stderr))
			}
			// In the watched directory the same file is a problem that the daemon lists.
			file := filepath.Join(n.manifests(), strings.ReplaceAll(strings.ReplaceAll(name, "/", "-"), " ", "-")+".yaml")
			moveIn(t, file, bad.doc)
			n.problem(t, file, bad.words...)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		})
	}
	if pods, err := n.API.Pods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("pods: got %+v, %v, want none", pods, err)
	}
	n.goodPod()
	n.DeleteClaims("good")
	n.nothingLeft()
}

// problem waits until the daemon's problem with the file has all words. The daemon may
// first say that the file is being written: a process that a parallel test forks has the
// writer's descriptor until its exec.
func (n *node) problem(t *testing.T, file string, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	last := "none"
	for ; ctx.Err() == nil; <-time.After(glance) {
		all, err := n.API.Problems(ctx)
		if err != nil {
			t.Fatalf("problem with %s: %v; the last was %q", file, err, last)
		}
		for _, p := range all {
			if filepath.Base(p.File) != filepath.Base(file) {
				continue
			}
			last = fmt.Sprintf("%s line %d field %s: %s", p.File, p.Line, p.Field, p.Message)
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(last, w) }) {
				return
			}
		}
	}
	t.Fatalf("problem with %s: got %q, want one with %q", file, last, words)
}

// What apply cannot judge, the pod's status explains, and other pods are mounted.
// Items: A17, A18, A20.
// Scenarios: U-172.
func TestPodThatCannotBeMountedSaysWhy(t *testing.T) {
	eachKind(t, func(n *node) {
		disk := harness.FromClaim("v", "disk")
		disk.Block = true
		absent := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: lost}\nspec:\n  capacity: {storage: 1Mi}\n" +
			"  accessModes: [ReadWriteOnce]\n  claimRef: {namespace: default, name: lost}\n  csi: {driver: absent.e2e.dev, volumeHandle: ../../../x}"
		lost := strings.Replace(claim("lost", "1Mi", fileSystem, rwo), "  storageClassName: class\n", "  storageClassName: \"\"\n  volumeName: lost\n", 1)
		n.Apply(n.driver.class(), claim("disk", "32Mi", block, rwo), claim("data", "64Mi", fileSystem, rwo), absent, lost)
		for name, bad := range map[string]struct {
			volume volume
			words  []string
		}{
			"no-claim":       {harness.FromClaim("v", "nowhere"), []string{"nowhere"}},
			"block-as-files": {harness.FromClaim("v", "disk"), []string{"volumeMode Block", "specified in volumeMounts"}},
			"files-as-block": {volume{Name: "v", Source: "persistentVolumeClaim: {claimName: data}", Block: true}, []string{"volumeMode Filesystem", "specified in volumeDevices"}},
			"no-driver":      {harness.FromClaim("v", "lost"), []string{"absent.e2e.dev"}},
			"no-configmap":   {volume{Name: "v", Source: "configMap: {name: nowhere}"}, []string{"nowhere"}},
			"no-inline":      {volume{Name: "v", Source: "csi: {driver: absent.e2e.dev}"}, []string{"absent.e2e.dev"}},
			"bad-driver":     {volume{Name: "v", Source: `csi: {driver: "../x"}`}, []string{"spec.volumes[0].csi.driver", "../x"}},
			"git":            {volume{Name: "v", Source: "gitRepo: {repository: /etc}"}, []string{"gitRepo"}},
			"iscsi":          {volume{Name: "v", Source: `iscsi: {targetPortal: "127.0.0.1:3260", iqn: "iqn.2001-04.com.example:x", lun: 0}`}, []string{"iscsi"}},
		} {
			n.Apply(harness.Pod(name, bad.volume))
			n.blocked(name, bad.words...) // the reason changes while claims are being bound
			r := n.CLI("", "wait", "pod", name, "--timeout", "10ms")
			if r.Code != 124 {
				n.T.Errorf("%s: wait: got exit code %d, want 124", name, r.Code)
			}
			wantWords(n.T, name+": wait", r.Stderr, append(bad.words, name)...)
			wantWords(n.T, name+": explain", n.Do("", "explain", "pod", name), bad.words...)
		}
		n.goodPod()
		for _, path := range n.tree() {
			if !strings.Contains(path, "kubernetes.io") {
				n.T.Errorf("made for a pod that cannot be mounted: %s", path)
			}
		}
	})
}

// Sockets of broken drivers affect no other driver, and the daemon lists them with the
// reason.
func TestBadDriversAreListedAndHarmNobody(t *testing.T) {
	t.Parallel()
	n := newNode(t, kinds()[0])
	garbage := func(c net.Conn) { c.Write([]byte("HTTP/1.1 500 no\r\n\r\n\x00\xff")); c.Close() }
	hang := func(c net.Conn) { <-t.Context().Done(); c.Close() }
	for name, answer := range map[string]func(net.Conn){"garbage": garbage, "hangs": hang} {
		// One driver cannot be registered, and one registers and then answers nothing
		// useful.
		listen(t, filepath.Join(n.registry(), name+"-reg.sock"), answer)
		endpoint := n.Path(name + ".sock")
		listen(t, endpoint, answer)
		register(t, n.registry(), name+"-inside.e2e.dev", endpoint)
	}
	register(t, n.registry(), "nobody.e2e.dev", n.Path("nobody.sock"))
	register(t, n.registry(), "..", n.driver.socket())
	register(t, n.registry(), "imposter.e2e.dev", n.driver.socket()) // the socket of another driver
	n.goodPod()
	n.socketProblem("garbage-reg.sock", "garbage-inside.e2e.dev", "nobody.e2e.dev", "imposter.e2e.dev")
	n.goodPod()
	n.DeleteClaims("good")
	n.nothingLeft()
}

// listen passes every connection to a unix socket to answer.
func listen(t *testing.T, socket string, answer func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go answer(c)
			}
		}
	}()
}

// socketProblem waits until the daemon lists a problem for each of the sockets, which are
// given by a part of their path.
func (n *node) socketProblem(parts ...string) {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.T.Context(), harness.Patience)
	defer cancel()
	var sockets []server.SocketStatus
	for _, part := range parts {
		found := false
		for ; !found && ctx.Err() == nil; <-time.After(glance) {
			var err error
			if sockets, err = n.API.Sockets(ctx); err != nil {
				n.T.Fatal(err)
			}
			for _, s := range sockets {
				found = found || strings.Contains(s.Path, part) && s.Problem != ""
			}
		}
		if !found {
			n.T.Fatalf("socket of %s: no problem is listed; there is %+v", part, sockets)
		}
	}
}

func TestProgramRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	for name, c := range map[string]struct {
		args  []string
		code  int
		words []string
	}{
		"unknown flag":    {[]string{"run", "--rootdir", "/x"}, 2, []string{"rootdir"}},
		"relative root":   {[]string{"run", "--root-dir", "x"}, 2, []string{"root-dir", "absolute"}},
		"unknown verb":    {[]string{"mount"}, 2, []string{"mount"}},
		"no daemon":       {[]string{"get", "pods"}, 1, []string{n.Socket, "run"}},
		"no such pod":     {[]string{"wait", "node", "web"}, 2, []string{"node"}},
		"bad config file": {[]string{"run", "--config", "/proc/self/status"}, 1, []string{"/proc/self/status"}},
	} {
		r := n.CLI("", c.args...)
		if r.Code != c.code {
			t.Errorf("%s: got exit code %d, want %d", name, r.Code, c.code)
		}
		wantWords(t, name, r.Stderr, c.words...)
	}
}

// A second daemon on the same root or journal would undo what the first does.
func TestSecondDaemonOnTheSameDirectoriesIsRefused(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	n.start()
	for _, shared := range []string{n.Root, n.Path("state")} {
		dirs := map[string]string{"--root-dir": n.Path("other-root"), "--state-dir": n.Path("other-state")}
		for flag, own := range map[string]string{"--root-dir": n.Root, "--state-dir": n.Path("state")} {
			if own == shared {
				dirs[flag] = shared
			}
		}
		r := harness.Run(t, "", program, "run", "--root-dir", dirs["--root-dir"], "--state-dir", dirs["--state-dir"],
			"--socket", n.Path("other.sock"), "--http-address", "off")
		if r.Code != 1 {
			t.Errorf("exit code: got %d, want 1", r.Code)
		}
		wantWords(t, "error", r.Stderr, shared)
	}
	n.daemon.Stop()
}
