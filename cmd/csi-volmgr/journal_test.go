package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The journal verbs report damage, repair it from the spare copy, and export the content;
// for a sound journal they report nothing.
//
// Faults: A184.
func TestTheJournalIsCheckedRepairedAndExported(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	b, err := state.OpenBolt(path)
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
