package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// analyze runs systemd-analyze verify on units.
func analyze(t *testing.T, files ...string) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal("systemd-analyze is not installed: package systemd (make host-tools)")
	}
	if out, err := exec.Command(tool, append([]string{"verify", "--man=no", "--recursive-errors=no"}, files...)...).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}

func (u unitCase) run(t *testing.T, socket string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, now: time.Now, euid: func() int { return 0 }, node: runNode}
	code = p.run(t.Context(), append([]string{"--socket", socket}, u.args...))
	return code, out.String(), errs.String()
}

type unitCase struct {
	args []string
	want []string
	code int
}

// systemd accepts a unit that gates a service on a verified mount.
func TestUnitOfAVolume(t *testing.T) {
	for _, u := range []unitCase{
		{
			args: []string{"volume", "unit", "pod", "web", "-n", "shop", "--timeout=90s"},
			want: []string{"wait pod web --namespace=shop --for=verified --timeout=1m30s", "After=csi-volmgr-shop-web.service csi-volmgr-drain.service", "TimeoutStartSec=120", "Type=oneshot"},
		},
		{args: []string{"volume", "unit", "pod", "web;reboot"}, code: exitUsage},
		{args: []string{"volume", "unit", "pod", "web", "-n", "a%b"}, code: exitUsage},
		{args: []string{"volume", "unit", "pod", "web", "--timeout=0s"}, code: exitUsage},
		{args: []string{"volume", "unit", "driver", "d"}, code: exitUsage},
		{args: []string{"volume", "unit", "pvc", "data"}, code: exitFailed}, // no daemon to ask
	} {
		socket := filepath.Join(t.TempDir(), "s")
		code, out, errs := u.run(t, socket)
		if code != u.code {
			t.Errorf("%q: exit code %d, want %d: %s", u.args, code, u.code, errs)
		}
		for _, w := range u.want {
			if !strings.Contains(out, w) {
				t.Errorf("%q: no %q in\n%s", u.args, w, out)
			}
		}
		if u.code != exitDone {
			continue
		}
		file := filepath.Join(t.TempDir(), "csi-volmgr-shop-web.service")
		if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		analyze(t, file)
	}
}

// systemd accepts the units that are shipped.
func TestUnitsAreWellFormed(t *testing.T) {
	files, err := filepath.Glob("../../deploy/systemd/csi-volmgr*")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	examples, err := filepath.Glob("../../examples/systemd/*.service")
	if err != nil || len(examples) < 3 {
		t.Fatalf("%q, %v", examples, err)
	}
	files = append(files, examples...)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var copies []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		// The test does not require that the programs are installed.
		text := strings.NewReplacer("/usr/bin/csi-volmgr ", self+" ", "/usr/local/bin/memory-driver ", self+" ").Replace(string(b))
		copies = append(copies, filepath.Join(dir, filepath.Base(f)))
		if err := os.WriteFile(copies[len(copies)-1], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	analyze(t, copies...)
}

// Each service has the limits that need no mount namespace of its own, which would hold the volumes' mounts.
func TestUnitsAreHardened(t *testing.T) {
	files, err := filepath.Glob("../../deploy/systemd/csi-volmgr*.service")
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"NoNewPrivileges=yes", "LockPersonality=yes", "RestrictRealtime=yes", "SystemCallArchitectures=native",
			"RestrictAddressFamilies=AF_UNIX", "CapabilityBoundingSet=", "UMask=0077", "MemoryDenyWriteExecute=yes",
			"RestrictNamespaces=", "SystemCallFilter=", "SystemCallErrorNumber=EPERM",
		} {
			if !strings.Contains(string(b), "\n"+want) {
				t.Errorf("%s: no %s", filepath.Base(f), want)
			}
		}
		for _, never := range []string{
			"PrivateTmp=", "PrivateMounts=", "PrivateDevices=", "ProtectSystem=", "ProtectHome=", "ProtectProc=", "ProcSubset=",
			"ProtectKernelTunables=", "ProtectKernelModules=", "ProtectKernelLogs=", "ProtectControlGroups=", "ReadOnlyPaths=",
			"ReadWritePaths=", "InaccessiblePaths=", "BindPaths=", "TemporaryFileSystem=", "RootDirectory=", "DynamicUser=",
		} {
			if strings.Contains(string(b), "\n"+never) {
				t.Errorf("%s: %s gives it a mount namespace", filepath.Base(f), never)
			}
		}
		for _, never := range []string{"ProtectClock=", "DeviceAllow=", "DevicePolicy="} {
			if strings.Contains(string(b), "\n"+never) {
				t.Errorf("%s: %s would deny it the disks", filepath.Base(f), never)
			}
		}
	}
}
