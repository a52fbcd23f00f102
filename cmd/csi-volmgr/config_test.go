package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/klog/v2"

	volumes "github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/selinux"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// started runs `run` with args and a configuration file (none if config is ""), and returns
// the options that the daemon got.
func started(t *testing.T, config string, args ...string) (o runOptions, code int, stderr string) {
	t.Helper()
	t.Cleanup(klog.ClearLogger)
	var out, errs strings.Builder
	p := &program{
		stdin: strings.NewReader(""), stdout: &out, stderr: &errs, now: time.Now, euid: func() int { return 0 },
		node: func(_ context.Context, got runOptions, _ *slog.Logger) error { o = got; return nil },
	}
	if config != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	code = p.run(t.Context(), append([]string{"run"}, args...))
	o.config = ""
	return o, code, errs.String()
}

// diffOf returns the difference of the options; an empty map or slice equals nil.
func diffOf(want, got runOptions) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(runOptions{}, rules{}, logOptions{}, wire.Config{}), cmpopts.EquateEmpty())
}

func TestDefaultsAreAsDocumented(t *testing.T) {
	got, code, stderr := started(t, "", "--node-name", "n")
	want := runOptions{
		node: wire.Config{
			Root: "/var/lib/kubelet", StateDir: "/var/lib/csi-volmgr", Name: "n",
			RegistrationDir: "/var/lib/kubelet/plugins_registry", SELinuxMount: selinux.Auto,
		},
		socket: "/run/csi-volmgr/csi-volmgr.sock", httpAddress: "127.0.0.1:9811", page: true,
		pluginSocket: "/run/docker/plugins/csi.sock", log: logOptions{"info", "text"},
	}
	if diff := diffOf(want, got); code != 0 || diff != "" {
		t.Errorf("exit code %d %s (-want +got):\n%s", code, stderr, diff)
	}
}

func TestConfigurationSetsEveryFlag(t *testing.T) {
	got, code, stderr := started(t, `# a comment
root-dir: /r
state-dir: /s
socket: /x.sock
http-address: "off"
page: false
manifests: /m
node-name: n
host-path-allow: [/srv/, /dev]
snapshot-handle-allow: [bank, "*"]
default-fstype: [d.example=ext4]
nomad-allow: [bank/namespace=shop, "*/driver=d.example", bank/owner]
local-driver: true
volumes-per-pod: 500
volume-plugin: true
volume-plugin-socket: /p.sock
registration-dir: /reg
log-level: debug
log-format: json
`)
	want := runOptions{
		node: wire.Config{
			Root: "/r", StateDir: "/s", Manifests: "/m", Name: "n", LocalDriver: true, RegistrationDir: "/reg",
			SELinuxMount: selinux.Auto, HostPaths: []string{"/srv", "/dev"},
			SnapshotHandles: []string{"bank", "*"}, FSTypes: map[state.DriverName]string{"d.example": "ext4"}, VolumesPerPod: 500,
			NomadAllow: []volumes.NomadRule{{Tenant: "bank", Option: "namespace", Value: "shop"}, {Tenant: "*", Option: "driver", Value: "d.example"}, {Tenant: "bank", Option: "owner", Value: "*"}},
		},
		rules:  rules{snapshotHandles: []string{"bank", "*"}, fsTypes: []string{"d.example=ext4"}, nomadAllow: []string{"bank/namespace=shop", "*/driver=d.example", "bank/owner"}},
		socket: "/x.sock", plugin: true, pluginSocket: "/p.sock", log: logOptions{"debug", "json"},
	}
	if diff := diffOf(want, got); code != 0 || diff != "" {
		t.Errorf("exit code %d %s (-want +got):\n%s", code, stderr, diff)
	}
}

func TestFlagsWinOverTheConfiguration(t *testing.T) {
	got, code, stderr := started(t, "root-dir: /file\nsocket: /file.sock\nlocal-driver: true\n",
		"--root-dir=/flag", "--socket=/flag.sock", "--local-driver=false")
	if code != 0 || got.node.Root != "/flag" || got.socket != "/flag.sock" || got.node.LocalDriver {
		t.Errorf("got %+v, exit code %d %s", got, code, stderr)
	}
}

func TestRepeatedFlagsAddUpAndWinAsAWhole(t *testing.T) {
	got, code, stderr := started(t, "host-path-allow: [/file]\n", "--host-path-allow=/a", "--host-path-allow", "/b,c/")
	if want := []string{"/a", "/b,c"}; code != 0 || !slices.Equal(got.node.HostPaths, want) {
		t.Errorf("got %q, exit code %d %s, want %q", got.node.HostPaths, code, stderr, want)
	}
	if got, code, stderr = started(t, "host-path-allow: /one\n"); code != 0 || !slices.Equal(got.node.HostPaths, []string{"/one"}) {
		t.Errorf("got %q, exit code %d %s", got.node.HostPaths, code, stderr)
	}
}

func TestEmptyConfigurationIsAllowed(t *testing.T) {
	for _, config := range []string{" ", "# nothing\n", "---\n", "{}\n"} {
		if _, code, stderr := started(t, config); code != 0 {
			t.Errorf("%q: exit code %d %s", config, code, stderr)
		}
	}
}

func TestWrongConfigurationIsToldByLineAndField(t *testing.T) {
	for _, tt := range []struct{ config, want string }{
		{"root-dir: /r\nrootdir: /x\n", `config.yaml:2: field "rootdir": no such field`},
		{"config: /x\n", `config.yaml:1: field "config": no such field`},
		{"\nlocal-driver: maybe\n", `config.yaml:2: field "local-driver": value "maybe": `},
		{"log-level: loud\n", `config.yaml:1: field "log-level": value "loud": must be one of debug, info, warn, error`},
		{"root-dir: /a\nroot-dir: /b\n", `line 2: field "root-dir" is there already, at line 1`},
		{"root-dir: [/a]\n", `config.yaml:1: field "root-dir": expected one value, found a list`},
		{"host-path-allow: [/a, [/b]]\n", `line 1: field "host-path-allow": expected one value, or a list of values`},
		{"host-path-allow: [~]\n", `line 1: field "host-path-allow": expected one value, or a list of values`},
		{"root-dir:\n", `line 1: field "root-dir": expected one value`},
		{"- a\n", "line 1: expected fields"},
		{"a: b\n---\nc: d\n", "more than one document"},
		{"root-dir: \"/a\n", "line "},
		{strings.Repeat("#", maxConfig+1), "over "},
	} {
		_, code, stderr := started(t, tt.config)
		if code != exitFailed || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%.40q: exit code %d %q, want %q", tt.config, code, stderr, tt.want)
		}
	}
	if _, code, stderr := started(t, "", "--config", "/does/not/exist"); code != exitFailed || !strings.Contains(stderr, "/does/not/exist") {
		t.Errorf("no file: exit code %d %s", code, stderr)
	}
}

func TestWrongFlagsAreWrongUse(t *testing.T) {
	for _, args := range [][]string{
		{"--root-dir=relative"},
		{"--state-dir="},
		{"--manifests=relative"},
		{"--host-path-allow=relative"},
		{"--image-layouts=relative"},
		{"--volume-plugin-socket=csi.sock"},
		{"--image-service-endpoint=/run/x.sock"},
		{"--translate=nfs"},
		{"--translate=none", "--translate=rbd"},
		{"--http-address=9811"},
		{"--log-level=loud"},
		{"--log-format=xml"},
		{"--no-such-flag"},
		{"stray"},
	} {
		if _, code, stderr := started(t, "", args...); code != exitUsage {
			t.Errorf("%v: exit code %d %s, want 2", args, code, stderr)
		}
	}
}

func TestHTTPCanBeSwitchedOff(t *testing.T) {
	for _, v := range []string{"", "off"} {
		if got, code, stderr := started(t, "", "--http-address="+v); code != 0 || got.httpAddress != "" {
			t.Errorf("%q: got %q, exit code %d %s", v, got.httpAddress, code, stderr)
		}
	}
}

func TestDaemonThatFailsEndsWithOne(t *testing.T) {
	var errs strings.Builder
	p := &program{
		stdin: strings.NewReader(""), stdout: &errs, stderr: &errs, now: time.Now, euid: func() int { return 0 },
		node: func(context.Context, runOptions, *slog.Logger) error { return errors.New("journal is in use") },
	}
	t.Cleanup(klog.ClearLogger)
	if code := p.run(t.Context(), []string{"run"}); code != exitFailed || !strings.Contains(errs.String(), "journal is in use") {
		t.Errorf("exit code %d %s", code, errs.String())
	}
}

// Log lines of Kubernetes libraries look like the program's own.
func TestLibrariesLogThroughTheProgram(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	var errs strings.Builder
	p := &program{
		stdin: strings.NewReader(""), stdout: &errs, stderr: &errs, now: time.Now, euid: func() int { return 0 },
		node: func(_ context.Context, _ runOptions, l *slog.Logger) error {
			klog.InfoS("from a library")
			klog.Flush()
			l.Debug("not shown")
			return nil
		},
	}
	p.run(t.Context(), []string{"run", "--log-format=json"})
	if got := errs.String(); !strings.Contains(got, `"msg":"from a library"`) || strings.Contains(got, "not shown") {
		t.Errorf("got %s", got)
	}
}

// configFields returns the fields of any configuration file, or an error.
func FuzzConfigFields(f *testing.F) {
	for _, seed := range []string{"", "a: b", "a: [", "- a", "a: &x b\nc: *x", "? [a]\n: b", "---\n---\n", "<<: {a: b}", "!!binary x: y"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := configFields(data)
		if err != nil && fields != nil {
			t.Errorf("fields %v beside error %v", fields, err)
		}
		for _, field := range fields {
			if field.line < 1 {
				t.Errorf("field %q has no line", field.name)
			}
		}
	})
}

func TestReadersAreAGroup(t *testing.T) {
	for group, want := range map[string]uint32{"": 0, "daemon": 1, "4711": 4711} {
		if got, err := readers(group); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", group, got, err, want)
		}
	}
	for _, group := range []string{"no-such-group", "0", "root", "-1", "4294967296"} {
		if _, code, stderr := started(t, "", "--api-readers="+group); code != 2 || !strings.Contains(stderr, "--api-readers="+group) {
			t.Errorf("%q: exit code %d: %s", group, code, stderr)
		}
	}
}

// A value that the flag's own syntax refuses is an error of the file, as docs/reference/config.md says.
func TestAWrongValueInTheFileNamesItsFileLineAndField(t *testing.T) {
	for config, want := range map[string]string{
		"deadline: [x]":                  "--deadline=x: expected DRIVER/RPC=DURATION",
		"nomad-allow: [bank/claim=x]":    "--nomad-allow=bank/claim=x: expected NOMAD-NAMESPACE/namespace=NAMESPACE",
		"snapshot-handle-allow: [A/b]":   "--snapshot-handle-allow=A/b: expected the name of a namespace, or * for any",
		"default-fstype: [ext4]":         "--default-fstype=ext4: expected DRIVER=FSTYPE",
		"default-fstype: ['*=ext4']":     "--default-fstype=*=ext4: expected DRIVER=FSTYPE",
		"host-path-allow: [rel]":         "--host-path-allow=rel: expected an absolute path",
		"root-dir: rel":                  "--root-dir=rel: expected an absolute path",
		"api-readers: no-such-group":     "--api-readers=no-such-group: expected a group",
		"local-driver: maybe":            `"maybe": expected true or false`,
		"volumes-per-pod: many":          `"many": expected a number`,
		"volumes-per-pod: -1":            "--volumes-per-pod=-1: expected a number above 0",
		"node-condition: often":          `"often": expected a duration such as 30s`,
		"token-issuer: https://example":  "--token-issuer=https://example: expected --token-signing-key",
		"unmount-steps: [a=gently@5m]":   "--unmount-steps=a=gently@5m: expected DRIVER=STEP@AFTER",
		"container-runtime-endpoint: /x": "--container-runtime-endpoint=/x: expected unix://",
	} {
		_, code, stderr := started(t, "# the first line\n"+config+"\n")
		name, _, _ := strings.Cut(config, ":")
		if code != exitFailed || !strings.Contains(stderr, "config.yaml:2: field \""+name+"\": ") || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d: %s", config, code, stderr)
		}
	}
	if _, code, stderr := started(t, "local-driver: true\n", "--deadline=x"); code != exitUsage || strings.Contains(stderr, "config.yaml") {
		t.Errorf("of a flag: exit code %d: %s", code, stderr)
	}
}
