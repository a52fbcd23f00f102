package image

import (
	"os"
	"path/filepath"
	"testing"
)

// The end of one volume removes directories that the end of another has open.
func TestADirectoryThatGoesWhileItIsReadIsEmpty(t *testing.T) {
	at := filepath.Join(t.TempDir(), unfinished)
	if err := os.Mkdir(at, storeMode); err != nil {
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
	if got, err := entries(dir); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
