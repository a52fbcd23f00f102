package mount

import (
	"context"
	"fmt"
)

// Erred returns, by path, what is to be said of mounts at and below the directory
// under whose file system takes no more writes: one that was mounted so is among
// them, and one that has become so after an error. Of the latter the kernel tells
// nobody: the mount table changes without a notification, and since Linux 6.13
// ext4 shows it by an option alone. No storage is asked.
func (k *Kernel) Erred(ctx context.Context, under string) (map[string]string, error) {
	rows, err := inLane(ctx, k.lanes, lane{"read the mount table", under}, func() ([]row, error) {
		if _, err := k.canonical(under); err != nil {
			return nil, err
		}
		return k.readMountinfo()
	})
	if err != nil {
		return nil, fmt.Errorf("look for file systems with errors below %s: %w", under, err)
	}
	erred := map[string]string{}
	for _, r := range rows { // the topmost of a path comes last
		if !within(r.path, under) {
			continue
		}
		delete(erred, r.path)
		if why := erredBy(r.superOptions); why != "" {
			erred[r.path] = why
		}
	}
	return erred, nil
}

// erredBy says why a file system takes no writes, by its options; "" if it does.
func erredBy(superOptions []string) string {
	const mend = ": the kernel log may say why; its pods have to be started anew once that is mended"
	switch {
	case hasOption(superOptions, "shutdown"):
		return "its file system was shut down after an error" + mend
	case hasOption(superOptions, "emergency_ro"):
		return "its file system has become read-only after an error" + mend
	case hasOption(superOptions, "ro"):
		return "its file system has become read-only" + mend
	}
	return ""
}
