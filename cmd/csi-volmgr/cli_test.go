package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) {
	if len(os.TempDir()) > 24 {
		os.Setenv("TMPDIR", "/tmp") // a socket's address holds 107 bytes, and the directory has the test's name
	}
	testscript.Main(m, map[string]func(){"csi-volmgr": main})
}

type backendKey struct{}

// The verbs as people type them: each testdata/script/*.txtar runs the program beside a
// daemon in this process, which shows the scene that the script names.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			b := newBackend(scene{})
			socket := filepath.Join(env.WorkDir, ".api", "s")
			stop, err := daemon(socket, b, time.Now)
			if err != nil {
				return err
			}
			env.Defer(func() { _ = stop() })
			env.Setenv("SOCKET", socket)
			env.Values[backendKey{}] = b
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"scene": scriptScene, "asked": scriptAsked, "fail": scriptFail, "code": scriptCode,
		},
	})
}

func scriptBackend(ts *testscript.TestScript) *backend {
	return ts.Value(backendKey{}).(*backend)
}

// scene NAME makes the daemon show a scene.
func scriptScene(ts *testscript.TestScript, _ bool, args []string) {
	make, ok := scenes[args[0]]
	if !ok {
		ts.Fatalf("no scene %q", args[0])
	}
	scriptBackend(ts).show(make(time.Now()))
}

// asked FILE writes the calls that the daemon got since the last time.
func scriptAsked(ts *testscript.TestScript, _ bool, args []string) {
	b := scriptBackend(ts)
	b.mu.Lock()
	defer b.mu.Unlock()
	text := ""
	for _, a := range b.asked {
		text += a + "\n"
	}
	b.asked = nil
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

// fail TEXT makes every verb of the daemon fail; an empty TEXT ends that.
func scriptFail(ts *testscript.TestScript, _ bool, args []string) {
	b := scriptBackend(ts)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err = nil; args[0] != "" {
		b.err = fmt.Errorf("%s", args[0])
	}
}

// code N ARGS... runs csi-volmgr at the daemon's socket; it must exit with N.
func scriptCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("csi-volmgr", append([]string{"--socket", ts.Getenv("SOCKET")}, args[1:]...)...)
	got := 0
	if exit, ok := err.(*exec.ExitError); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// Every table and text that the verbs print, at a fixed time.
func TestWhatTheVerbsShow(t *testing.T) {
	for _, tt := range []struct{ scene, args string }{
		{"mounted", "get pods"},
		{"mounted", "get pods -A -o wide"},
		{"stuck", "get pods"},
		{"leaving", "get pods"},
		{"mounted", "get volumes"},
		{"stuck", "get volumes -o wide"},
		{"leaving", "get volumes"},
		{"mounted", "get drivers"},
		{"stuck", "get drivers -o wide"},
		{"mounted", "get pv -o wide"},
		{"mounted", "get pv"},
		{"mounted", "get pvc"},
		{"mounted", "get pvc -A -o wide"},
		{"stuck", "get problems"},
		{"mounted", "get mounts --pod web"},
		{"mounted", "get mounts -A -o wide"},
		{"mounted", "get mounts web -o json"},
		{"mounted", "get pvc data -o yaml"},
		{"mounted", "get mounts web -o jsonpath={range.items[*]}{.name}={.hostPath};{end}"},
		{"stuck", "get volume data -o yaml"},
		{"mounted", "describe pod web"},
		{"stuck", "describe pod/web"},
		{"mounted", "describe volume data"},
		{"stuck", "describe volume pv-data"},
		{"leaving", "describe volume default/data"},
		{"mounted", "describe driver nfs.example.com"},
		{"stuck", "explain pod web"},
		{"stuck", "explain volume data -o json"},
	} {
		t.Run(tt.scene+" "+tt.args, func(t *testing.T) {
			r := newRig(t, scenes[tt.scene](fixed))
			if code := r.do(t, strings.Fields(tt.args)...); code != 0 {
				t.Fatalf("exit code %d: %s", code, r.stderr.String())
			}
			name := strings.NewReplacer(" ", "_", "/", "+", "{", "", "}", "", "[", "", "]", "", "*", "", ";", "", "=", "_").Replace(tt.scene + " " + tt.args)
			golden(t, filepath.Join("testdata", "show", name+".txt"), r.stdout.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; rewrite with -update):\n%s", path, diff)
	}
}

func TestSizesAreWrittenAsInManifests(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "-", 512: "512", 1 << 10: "1Ki", 256 << 20: "256Mi", 512<<20 - 1: "512Mi", 3 << 29: "1.5Gi", 1 << 40: "1Ti", 1 << 60: "1Ei",
	} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d) = %q, want %q", bytes, got, want)
		}
	}
}

func TestNamesMayBeGivenInTwoForms(t *testing.T) {
	for args, want := range map[string]string{
		"pod web":         "[{pods web}]",
		"pods/web":        "[{pods web}]",
		"po web db":       "[{pods web} {pods db}]",
		"pod pod/web":     "[{pods web}]",
		"pod/a pvc/b":     "[{pods a} {pvc b}]",
		"volume/ns/claim": "[{volumes ns/claim}]",
		"volume ns/claim": "[{volumes ns/claim}]",
		"Drivers":         "[{drivers }]",
		"pod/":            `"pod/": expected KIND/NAME`,
		"node x":          `unknown kind "node": expected one of pods, pvc, volumes, drivers`,
		"x/y":             `unknown kind "x": expected one of pods, pvc, volumes, drivers`,
	} {
		got, err := targets(strings.Fields(args), "pods", "pvc", "volumes", "drivers")
		text := fmt.Sprint(got)
		if err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%s: got %s, want %s", args, text, want)
		}
	}
}

// Items: N-08.
func TestDaemonAndDriverSayThatTheyNeedRoot(t *testing.T) {
	for _, verb := range []string{"run", "local-driver"} {
		var stdout, stderr strings.Builder
		p := &program{
			stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now, euid: func() int { return 1000 },
			node: func(context.Context, runOptions, *slog.Logger) error { t.Error("the daemon was started"); return nil },
		}
		code := p.run(t.Context(), []string{verb})
		if want := "sudo csi-volmgr " + verb + "\n"; code != exitFailed || !strings.HasSuffix(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %q; want 1 and one line that ends with %q", verb, code, stderr.String(), want)
		}
	}
}
