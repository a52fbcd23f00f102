// Package filelock takes locks that keep a second program away from a file or a
// directory (flock(2)), and outwaits those that the dead still seem to hold.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another program has the lock.
var ErrHeld = errors.New("another program has it")

// patience is how long a program that was killed may still seem to hold its lock:
// a child that it was about to make has the lock too until it executes its program.
const patience = time.Second

// Take gives f's open file description the lock, which ends when f and its copies
// are closed. The error is ErrHeld if another still has the lock after a second;
// f must not be used then, and is closed.
func Take(f *os.File) error {
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
		return closed(f, err)
	}
	locked := make(chan error, 1)
	go func() { locked <- flock(f, unix.LOCK_EX) }()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-locked:
		return closed(f, err)
	case <-late.C:
		go func() { // the system call cannot be called off: the lock is given back when it comes
			<-locked
			_ = f.Close()
		}()
		return fmt.Errorf("lock %s: %w", f.Name(), ErrHeld)
	}
}

// closed closes f if there is an error.
func closed(f *os.File, err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
