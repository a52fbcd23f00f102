package watch

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Faults: A164.
func TestStrayFilesAreCounted(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"empty": "", "file": "text"} {
		must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	must(os.Symlink(dir, filepath.Join(dir, "link")))
	must(syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(os.Mkdir(filepath.Join(dir, "none"), 0o700))
	for path, want := range map[string]int{".": 5, "empty": 0, "file": 1, "link": 0, "fifo": 0, "none": 0, "missing": 0} {
		if got := Stray(filepath.Join(dir, path)); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}
