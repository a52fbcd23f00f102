package csiclient

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A call that outlasts its driver, as one on dead storage does, uses the root
// directory or nothing, never what has its descriptor's number by then: the race
// detector sees the latter.
func TestACallMayOutlastItsDirectories(t *testing.T) {
	root := t.TempDir()
	d, err := openDirs(root)
	if err != nil {
		t.Fatal(err)
	}
	looked, ended := make(chan struct{}), make(chan error)
	go func() {
		err := d.makeDir(filepath.Join(root, "a"))
		close(looked)
		for err == nil {
			_, err = d.look("a/b")
		}
		ended <- err
	}()
	<-looked
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after its driver was closed a call got %v, want that the root is closed", err)
	}
}
