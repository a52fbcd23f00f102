package localdriver

import (
	"strings"
	"testing"
)

func TestOneStateDirectoryHasOneDriver(t *testing.T) {
	c := Config{NodeID: "n1", StateDir: t.TempDir()}
	first, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), c.StateDir) {
		t.Errorf("a second driver: %v", err)
	}
	// A driver that is about to end does not keep its successor out.
	type made struct {
		d   *Driver
		err error
	}
	next := make(chan made, 1)
	go func() {
		d, err := New(c)
		next <- made{d, err}
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	m := <-next
	if m.err != nil {
		t.Fatal(m.err)
	}
	if err := m.d.Close(); err != nil {
		t.Error(err)
	}
}
