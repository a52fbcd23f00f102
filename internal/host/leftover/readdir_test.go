package leftover

import (
	"os"
	"path/filepath"
	"testing"
)

// A pod that ends during the scan removes a directory that the scan has open.
func TestADirectoryThatGoesWhileItIsReadIsEmpty(t *testing.T) {
	at := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if got, err := readDir(dir); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
