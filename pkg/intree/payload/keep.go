package payload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	// KeepTime is how long a set stays after it was replaced. A reader that
	// followed ..data before the switch needs microseconds to open the file, but
	// a loaded machine may not let it run for some tenths of a second.
	KeepTime = 2 * time.Second
	// maxKept is how many replaced sets there may be. A writer that would make
	// more waits for the oldest's time: about 30 updates a second for ever, which
	// no object of an API has.
	maxKept = 64
)

// Sweep removes the sets that were replaced longer than [KeepTime] ago, and
// what a crash left of one that was never finished. It returns how many
// replaced sets are left. It is a Write, as to what may run beside it.
func (w *Writer) Sweep(ctx context.Context, dir *os.File) (left int, err error) {
	s := set{Writer: w, dir: dir, fd: int(dir.Fd())}
	return s.sweep(ctx)
}

// sets lists the names of all sets, the oldest first.
func (s *set) sets() ([]string, error) {
	names, err := list(s.fd)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isSet(name) })
	slices.Sort(names)
	return names, nil
}

// replaced lists the sets before the current one, the oldest first, and those
// after it, which were never switched to.
func (s *set) replaced() (before, after []string, err error) {
	all, err := s.sets()
	if err != nil {
		return nil, nil, err
	}
	now := target(s.fd, current)
	for _, name := range all {
		switch {
		case name < now:
			before = append(before, name)
		case name > now:
			after = append(after, name)
		}
	}
	return before, after, nil
}

// sweep is Sweep.
func (s *set) sweep(ctx context.Context) (left int, err error) {
	before, after, err := s.replaced()
	if err != nil {
		return 0, err
	}
	for _, name := range append(after, currentTmp, linkTmp) {
		if err := s.drop(ctx, name); err != nil {
			return 0, err
		}
	}
	for i, name := range before {
		next := target(s.fd, current)
		if i+1 < len(before) {
			next = before[i+1]
		}
		if s.wait(next) > 0 {
			return len(before) - i, nil // and so are those after it
		}
		if err := s.drop(ctx, name); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// wait is how much longer the set before the one called next is kept.
func (s *set) wait(next string) time.Duration {
	replaced, err := time.Parse(stamp, next)
	if err != nil {
		return 0 // not a name of ours: nothing tells when
	}
	// Where the clock was put back, its time starts anew.
	return min(replaced.Add(KeepTime).Sub(s.Now()), KeepTime)
}

// makeRoom waits until there are fewer than maxKept replaced sets.
func (s *set) makeRoom(ctx context.Context) error {
	if _, err := s.sweep(ctx); err != nil {
		return err
	}
	before, _, err := s.replaced()
	if err != nil || len(before) < maxKept {
		return err
	}
	timer := time.NewTimer(max(0, s.wait(before[1])))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("wait for the readers of %d earlier versions: %w", len(before), context.Cause(ctx))
	}
	return s.drop(ctx, before[0]) // whatever the clock says by now
}

// dropReplaced removes all replaced sets, and reports whether there were any.
func (s *set) dropReplaced(ctx context.Context) (gone bool, err error) {
	before, _, err := s.replaced()
	for _, name := range before {
		err = errors.Join(err, s.drop(ctx, name))
	}
	return len(before) > 0, err
}

func (s *set) drop(ctx context.Context, name string) error {
	if err := s.discard(ctx, name); err != nil {
		return fmt.Errorf("remove the files of an earlier version: %w", err)
	}
	return nil
}
