// Package filelock takes flock(2) locks that keep a second program away from a file or
// directory, and waits for those that a killed program may briefly still hold.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another program holds the lock.
var ErrHeld = errors.New("another program has it")

// patience is how long a killed program may still seem to hold its lock: a child that
// it has just forked shares the lock until the child executes its program.
const patience = time.Second

// Take locks f's open file description. The lock ends when f and its copies are
// closed. If another program still holds the lock after a second, the error is ErrHeld.
// On every error Take closes f, which must not be used any more.
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
		go func() { // the system call cannot be cancelled: release the lock once it returns
			<-locked
			_ = f.Close()
		}()
		return fmt.Errorf("lock %s: %w", f.Name(), ErrHeld)
	}
}

// closed closes f if err is not nil.
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
