package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
)

// The journal verbs report damage, repair it from the spare copy, and export the content;
// for a sound journal they report nothing.
//
// Faults: A184.
func TestTheJournalIsCheckedRepairedAndExported(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	b, err := journal.OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.CommitBucket(t.Context(), "claims", map[string][]byte{"default/a": []byte(`{"name":"pvc-a"}`)}), b.Close()); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, mounted(fixed))
	verb := func(name string, code int, want ...string) {
		t.Helper()
		got := r.do(t, "journal", name, "--state-dir", dir)
		for _, w := range want {
			if out := r.stdout.String() + r.stderr.String(); got != code || !strings.Contains(out, w) {
				t.Errorf("journal %s: exit code %d, want %d, and %q in:\n%s", name, got, code, w, out)
			}
		}
	}
	verb("check", 0, path+": kv/claims 1, meta 2\n", path+".spare: kv/claims 1")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte("pvc-a"), []byte("pvc-A")), 0o600); err != nil {
		t.Fatal(err)
	}
	verb("check", 1, "  kv/claims/default/a: checksum mismatch\n", "is not sound")
	verb("export", 0, `{"bucket":"kv/claims","key":"default/a","bytes":"`, `"unreadable":"checksum mismatch"}`)
	verb("repair", 0, "mended from the spare copy: kv/claims/default/a\n")
	verb("check", 0, path+": kv/claims 1, meta 3\n  records may be lost: journal repair took values from the spare copy")
	verb("export", 0, `{"bucket":"kv/claims","key":"default/a","value":{"name":"pvc-a"}}`)
}

// The verbs make no journal where there is none, and say of one that a daemon holds only that it was not
// read: it may be sound.
func TestTheJournalVerbsFailWithoutAJournalToRead(t *testing.T) {
	r := newRig(t, mounted(fixed))
	wants := func(dir, name, want string) {
		t.Helper()
		got := r.do(t, "journal", name, "--state-dir", dir)
		if out := r.stdout.String() + r.stderr.String(); got != exitFailed || !strings.Contains(out, want) || strings.Contains(out, "not sound") {
			t.Errorf("journal %s: exit code %d, want 1, and %q in:\n%s", name, got, want, out)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	wants(none, "check", "--state-dir")
	wants(none, "repair", "--state-dir")
	if _, err := os.Stat(none); err == nil {
		t.Error("journal repair made a journal in a directory that had none")
	}

	dir := t.TempDir()
	b, err := journal.OpenBolt(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	wants(dir, "check", "stop the daemon first")
	wants(dir, "repair", "another daemon holds the journal")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if code := r.do(t, "journal", "repair", "--state-dir", dir); code != exitDone || r.stdout.String() != "nothing to repair: every value can be read\n" {
		t.Errorf("journal repair of a sound journal: exit code %d, %q", code, r.stdout.String())
	}
}

// journal check does not call a journal of the other byte order damaged, and promises no repair.
func TestJournalOfTheOtherByteOrder(t *testing.T) {
	r, dir := newRig(t, mounted(fixed)), t.TempDir()
	path := filepath.Join(dir, "state.db")
	b, err := journal.OpenBolt(path)
	if err == nil {
		err = b.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const magic = 16 // its offset in the file
	slices.Reverse(data[magic : magic+4])
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	code := r.do(t, "journal", "check", "--state-dir", dir)
	out := r.stdout.String() + r.stderr.String()
	if code != exitFailed || !strings.Contains(out, "other byte order") || !strings.Contains(out, "this machine cannot use") || strings.Contains(out, "repair") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
