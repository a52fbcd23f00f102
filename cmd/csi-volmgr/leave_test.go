package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// On a terminal the key q ends the live view, which restores the terminal.
func TestTopEndsAtQ(t *testing.T) {
	r := newRig(t, stuck(fixed))
	screen, other := terminal(t)
	keyboard, keys := terminal(t)
	before, err := unix.IoctlGetTermios(int(keyboard.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	r.program.stdout, r.program.stdin = screen, keyboard
	code := make(chan int, 1)
	go func() {
		code <- r.run(t.Context(), []string{"--socket", r.socket, "top"})
		_ = screen.Close()
	}()
	seen := make([]byte, 1)
	if _, err := io.ReadFull(other, seen); err != nil { // the view has been drawn
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, other) }()
	if _, err := keys.WriteString("xyq"); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != exitDone {
		t.Errorf("exit code %d: %s", got, r.stderr.String())
	}
	after, err := unix.IoctlGetTermios(int(keyboard.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is %+v, was %+v, %v", after, before, err)
	}
}

// Help for a verb that does not exist is wrong use, too.
func TestHelpForNoVerbIsWrongUse(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"help nosuch":          {exitUsage, `unknown command "nosuch"`},
		"help aply":            {exitUsage, "is it apply?"},
		"help driver nosuch":   {exitUsage, `unknown command "nosuch" for "csi-volmgr driver"`},
		"help driver register": {exitDone, "csi-volmgr driver register ENDPOINT"},
		"help":                 {exitDone, "Available Commands:"},
		"driver --help":        {exitDone, "unregister"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), nil, &out, &out); code != want.code || !strings.Contains(out.String(), want.text) {
			t.Errorf("%s: exit code %d, %s, want %d and %q", args, code, out.String(), want.code, want.text)
		}
	}
}

// Uninstall without a flag lists what it would remove, and removes nothing.
func TestUninstallListsWithoutAFlag(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	dir := shortDir(t)
	daemonIn(t, dir)()
	list := func(flags ...string) (int, string) {
		var out bytes.Buffer
		args := append([]string{"--socket", filepath.Join(dir, "s"), "uninstall", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "state")}, flags...)
		p := &program{stdin: strings.NewReader(""), stdout: &out, stderr: &out, now: time.Now, euid: func() int { return 0 }}
		return p.run(t.Context(), args), out.String()
	}
	journal := filepath.Join(dir, "state", "state.db")
	code, out := list()
	if code != exitDone || !strings.Contains(out, "would remove "+journal+"\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, dry := list("--dry-run"); code != exitDone || dry != out {
		t.Errorf("--dry-run: exit code %d: %s, want %s", code, dry, out)
	}
	if _, err := os.Stat(journal); err != nil {
		t.Error(err)
	}
	if code, out := list("--dry-run", "--yes"); code != exitUsage {
		t.Errorf("both: exit code %d: %s", code, out)
	}
}

// If the daemon's HTTP address is in use, the error names the flag that sets another one.
func TestAnAddressInUseNamesItsFlag(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	dir := shortDir(t)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stderr strings.Builder
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &stderr, now: time.Now, euid: func() int { return 0 }, node: runNode}
	code := p.run(t.Context(), []string{
		"run", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "state"), "--node-name", "n1",
		"--socket", filepath.Join(dir, "s"), "--http-address", l.Addr().String(),
	})
	if said := stderr.String(); code != exitFailed || !strings.Contains(said, fmt.Sprintf("address already in use (process %d, ", os.Getpid())) ||
		!strings.Contains(said, "start this with --http-address=off") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}
