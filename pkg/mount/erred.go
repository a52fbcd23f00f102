package mount

import (
	"context"
	"fmt"
)

// Fault is how a file system takes no more writes: it was shut down after an error,
// it is read-only after one, or the zero value, it is read-only and the mount table
// does not say why.
type Fault struct{ ShutDown, AfterError bool }

// Erred returns, by path, the mounts at and below the directory under whose file
// system takes no more writes: one that was mounted so is among them, and one that
// has become so after an error. Of the latter the kernel tells
// nobody: the mount table changes without a notification, and since Linux 6.13
// ext4 shows it by an option alone. No storage is asked.
func (k *Kernel) Erred(ctx context.Context, under string) (map[string]Fault, error) {
	rows, err := inLane(ctx, k.lanes, lane{"read the mount table", under}, func() ([]row, error) {
		if _, err := k.canonical(under); err != nil {
			return nil, err
		}
		return k.readMountinfo()
	})
	if err != nil {
		return nil, fmt.Errorf("look for file systems with errors below %s: %w", under, err)
	}
	erred := map[string]Fault{}
	for _, r := range rows { // the topmost of a path comes last
		if !within(r.path, under) {
			continue
		}
		delete(erred, r.path)
		if f, faulty := faultOf(r.superOptions); faulty {
			erred[r.path] = f
		}
	}
	return erred, nil
}

// faultOf says by a file system's options whether and how it takes no writes.
func faultOf(superOptions []string) (f Fault, faulty bool) {
	f = Fault{ShutDown: hasOption(superOptions, "shutdown"), AfterError: hasOption(superOptions, "emergency_ro")}
	return f, f != Fault{} || hasOption(superOptions, "ro")
}
