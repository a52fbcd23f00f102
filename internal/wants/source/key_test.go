package source

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKeyOfRevisionsLastsForTheBoot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	key := func() string {
		t.Helper()
		k, err := RevisionKey(dir)
		if err != nil || len(k) != 32 {
			t.Fatalf("got %d bytes, %v", len(k), err)
		}
		return string(k)
	}
	first := key()
	if key() != first {
		t.Error("a restart draws another key")
	}
	path := filepath.Join(dir, keyFile)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", st, err)
	}
	if err := os.Truncate(path, 5); err != nil {
		t.Fatal(err)
	}
	if second := key(); second == first || key() != second {
		t.Error("a key that was cut off is not drawn anew")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/hostname", path); err != nil {
		t.Fatal(err)
	}
	if _, err := RevisionKey(dir); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link: got %v, want ELOOP", err)
	}
}
