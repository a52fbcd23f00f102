//go:build vm

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/away"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// patience bounds the wait for an event in an emulated machine on a loaded host.
const patience = 3 * time.Minute

const pod, otherPod = state.PodUID("7f3c2a10-0000-4000-8000-000000000001"), state.PodUID("7f3c2a10-0000-4000-8000-000000000002")

// sh runs a program and returns its output.
func sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// await waits until done reports true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !done() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// mountOf returns the line of /proc/self/mountinfo about path, or "" if nothing is
// mounted there.
func mountOf(t *testing.T, path string) string {
	t.Helper()
	for line := range bytes.Lines([]byte(read(t, "/proc/self/mountinfo"))) {
		if fields := strings.Fields(string(line)); fields[4] == path {
			return strings.TrimSpace(string(line))
		}
	}
	return ""
}

// volume returns the record of a volume of a built-in kind that the pods use.
func volume(t *testing.T, l state.Layout, s state.Spec, config any, pods ...state.PodUID) state.Volume {
	t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Builtin, s.Config = true, b
	v := state.Volume{ID: state.SharedID(s.Driver, s.Name), Spec: &s, Mounts: map[state.PodUID]state.Mount{}}
	for _, uid := range pods {
		v.Mounts[uid] = state.Mount{MountSpec: state.MountSpec{Pod: state.Pod{UID: uid}, Target: l.BuiltinTarget(s.Driver, uid, s.Name)}}
	}
	return v
}

// newHelpers returns a pool of helper processes, which are this program (TestMain).
func newHelpers(t *testing.T) *isolate.Pool {
	t.Helper()
	p := isolate.New(isolate.Config{Service: away.Service(), Command: func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", "helper")
		cmd.Stderr = os.Stderr
		return cmd
	}})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// stage stages v, again while it fails: in an emulated machine a device may appear later than a
// call waits for it.
func stage(t *testing.T, d *away.Driver, v state.Volume) {
	t.Helper()
	await(t, "stage "+v.Spec.Name, func() bool {
		err := d.Stage(t.Context(), v)
		if err != nil {
			t.Logf("stage %s: %v", v.Spec.Name, err)
		}
		return err == nil
	})
}

// gain gives this machine an address that lose can remove.
func gain(t *testing.T, address string) {
	t.Helper()
	sh(t, "ip", "addr", "add", address+"/32", "dev", "lo")
}

// lose makes the server at that address silent: no packet to it leaves.
func lose(t *testing.T, address string) {
	t.Helper()
	sh(t, "ip", "addr", "del", address+"/32", "dev", "lo")
	sh(t, "ip", "route", "add", "blackhole", address+"/32")
}

// regain undoes lose.
func regain(t *testing.T, address string) {
	t.Helper()
	sh(t, "ip", "route", "del", "blackhole", address+"/32")
	gain(t, address)
}

// useBlock writes to a pod's raw block volume and reads the text back from it and
// from the file behind the disk.
func useBlock(t *testing.T, node, image, text string) {
	t.Helper()
	const at = 1 << 20
	if st, err := os.Stat(node); err != nil || st.Mode().Type() != os.ModeDevice {
		t.Fatalf("%s is no block device: %v, %v", node, st.Mode(), err)
	}
	f, err := os.OpenFile(node, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	copy(block, text)
	if _, err := f.WriteAt(block, at); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{"the pod's node": node, "the disk": image} {
		if got := text; readAt(t, path, at, len(got)) != got {
			t.Errorf("%s has %q, want %q", what, readAt(t, path, at, len(got)), got)
		}
	}
	if first := readAt(t, image, 0, 4096); first != string(make([]byte, 4096)) {
		t.Error("something was made on a raw block volume")
	}
}

func readAt(t *testing.T, path string, at int64, n int) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantSize fails the test unless the block device has that many bytes.
func wantSize(t *testing.T, node string, want int64) {
	t.Helper()
	f, err := os.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := f.Seek(0, io.SeekEnd); err != nil || got != want {
		t.Errorf("%s: %d bytes, %v, want %d", node, got, err, want)
	}
}

func layout(t *testing.T) state.Layout {
	t.Helper()
	return state.Layout{Root: mkdir(t, filepath.Join(t.TempDir(), "node"))}
}
