package mount

import (
	"context"
	"fmt"
	"strings"
)

// BusyError says what keeps a mount in use, as far as that could be found.
type BusyError struct {
	// Mounts are the paths mounted below it.
	Mounts []string
	Err    error
}

func (e *BusyError) Error() string {
	if len(e.Mounts) == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v (mounted below it: %s)", e.Err, strings.Join(e.Mounts, ", "))
}

func (e *BusyError) Unwrap() error { return e.Err }

func (k *Kernel) explainBusy(ctx context.Context, target string, cause error) error {
	busy := &BusyError{Err: cause}
	path, err := k.canonical(target)
	if err != nil {
		return busy
	}
	entries, err := k.List(ctx, target)
	if err != nil {
		return busy
	}
	for _, e := range entries {
		if e.Path != path {
			busy.Mounts = append(busy.Mounts, e.Path)
		}
	}
	return busy
}
