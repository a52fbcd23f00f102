package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A configuration file is the daemon's: it cannot say that a verb acts, or overrules a refusal.
func TestAdoptTakesOnlyTheDaemonsFieldsFromTheFile(t *testing.T) {
	for _, field := range []string{"yes: true", "dry-run: true", "reason: x", "from: /x"} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(field+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, mounted(fixed))
		dir := t.TempDir()
		code := r.do(t, "adopt", "--dry-run", "--root-dir", dir, "--state-dir", dir, "--config", path)
		if code != exitFailed || !strings.Contains(r.stderr.String(), ":1: field ") || !strings.Contains(r.stderr.String(), "no such field") {
			t.Errorf("%s: exit code %d: %s", field, code, r.stderr.String())
		}
	}
}

// A bundle reads the file as the daemon does, with its field socket.
func TestABundleReadsTheWholeConfiguration(t *testing.T) {
	r := newRig(t, mounted(fixed))
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte("socket: "+r.socket+"\nstate-dir: "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.stderr.Reset()
	socket := r.socket
	code := r.run(t.Context(), []string{"trace", "--export", filepath.Join(dir, "b.tar.gz"), "--config", path})
	if errs := r.stderr.String(); code != exitDone || strings.Contains(errs, "no such field") || strings.Contains(errs, "no daemon answers") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if r.socket != socket {
		t.Errorf("the bundle asked the daemon at %s, want the file's %s", r.socket, socket)
	}
}
