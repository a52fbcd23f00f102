//go:build vm

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// patience is how long an emulated machine on a loaded host may take for
// anything that is to happen.
const patience = 3 * time.Minute

const pod, otherPod = state.PodUID("7f3c2a10-0000-4000-8000-000000000001"), state.PodUID("7f3c2a10-0000-4000-8000-000000000002")

// sh runs a program and returns what it said.
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

// mountOf is the line of /proc/self/mountinfo about path, "" where nothing is
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

// volume is the record of a volume of a built-in kind that the pods use.
func volume(t *testing.T, l state.Layout, s state.Spec, config any, pods ...state.PodUID) state.Volume {
	t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Builtin, s.Config = true, b
	v := state.Volume{ID: state.SharedID(s.Driver, s.Name), Spec: s, Mounts: map[state.PodUID]state.Mount{}}
	for _, uid := range pods {
		v.Mounts[uid] = state.Mount{MountSpec: state.MountSpec{Pod: state.Pod{UID: uid}, Target: l.BuiltinTarget(s.Driver, uid, s.Name)}}
	}
	return v
}

func layout(t *testing.T) state.Layout {
	t.Helper()
	return state.Layout{Root: mkdir(t, filepath.Join(t.TempDir(), "node"))}
}
