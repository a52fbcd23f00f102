package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// waits reports whether a caller waits in the kernel for the lock of f.
func waits(t *testing.T, f *os.File) bool {
	t.Helper()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, fmt.Sprintf(":%d ", st.Sys().(*syscall.Stat_t).Ino)) {
			return true
		}
	}
	return false
}

// A lock that a killed program's child still holds for a moment is worth a wait.
func TestALockThatIsAboutToBeFreeIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, next := open(t, path), open(t, path)
	defer next.Close()
	if err := Take(held); err != nil {
		t.Fatal(err)
	}
	taken := make(chan error)
	go func() { taken <- Take(next) }()
	for !waits(t, held) {
		select {
		case err := <-taken:
			t.Fatalf("%v, without a waiter", err)
		case <-time.After(time.Millisecond):
		}
	}
	held.Close()
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	third := open(t, path)
	if err := Take(third); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), path) {
		t.Errorf("a third program: %v", err)
	}
}

// A waiter that gave up never gets the lock, even if its turn comes.
func TestWhoGaveUpHoldsUpNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held := open(t, path)
	if err := Take(held); err != nil {
		t.Fatal(err)
	}
	if err := Take(open(t, path)); !errors.Is(err, ErrHeld) {
		t.Fatal(err)
	}
	held.Close()
	last := open(t, path)
	defer last.Close()
	if err := Take(last); err != nil {
		t.Error(err)
	}
}

func TestAnErrorOfTheKernelNamesTheFile(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "lock"))
	f.Close()
	if err := Take(f); err == nil || errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), f.Name()) {
		t.Error(err)
	}
}
