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
	// KeepTime is how long a set is kept after it was replaced. A reader that followed
	// ..data before the switch needs microseconds to open the file, but a loaded
	// machine may delay it by some tenths of a second.
	KeepTime = 2 * time.Second
	// maxKept is the maximum number of replaced sets. A writer that would exceed it
	// waits for the oldest to be old enough. That takes some 30 updates a second over a
	// longer time, which no API object has.
	maxKept = 64
)

// Sweep removes the sets that were replaced longer than [KeepTime] ago, and the remains
// of a set that a crash left unfinished. It returns how many replaced sets are left. It
// must not run at the same time as a Write.
func (w *Writer) Sweep(ctx context.Context, dir *os.File) (left int, err error) {
	s := set{Writer: w, dir: dir, fd: int(dir.Fd())}
	if err := s.readEntries(); err != nil {
		return 0, err
	}
	return s.sweep(ctx)
}

// readEntries reads the directory's entries once. No other call makes or removes entries of
// ours meanwhile, so the result stays valid.
func (s *set) readEntries() error {
	names, err := list(s.fd)
	if err != nil {
		return err
	}
	s.held = make(map[string]bool, len(names))
	for _, name := range names {
		s.held[name] = true
		if isSet(name) {
			s.sets = append(s.sets, name)
		}
	}
	slices.Sort(s.sets)
	if s.held[current] {
		s.now = target(s.fd, current)
	}
	return nil
}

// replaced returns the sets before the current one, oldest first, and those after it,
// which never became current.
func (s *set) replaced() (before, after []string) {
	i, found := slices.BinarySearch(s.sets, s.now)
	before, after = s.sets[:i], s.sets[i:]
	if found {
		after = after[1:]
	}
	return slices.Clone(before), slices.Clone(after)
}

// sweep implements Sweep after readEntries.
func (s *set) sweep(ctx context.Context) (left int, err error) {
	before, after := s.replaced()
	for _, name := range append(after, currentTmp, linkTmp) {
		if !s.held[name] {
			continue
		}
		if err := s.drop(ctx, name); err != nil {
			return 0, err
		}
	}
	for i, name := range before {
		next := s.now
		if i+1 < len(before) {
			next = before[i+1]
		}
		if s.wait(next) > 0 {
			return len(before) - i, nil // the later ones must also be kept
		}
		if err := s.drop(ctx, name); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// wait returns how much longer to keep the set that the set called next replaced.
func (s *set) wait(next string) time.Duration {
	replaced, err := time.Parse(stamp, next)
	if err != nil {
		return 0 // not a name of ours: it does not contain the time
	}
	// If the clock was set back, the time starts again.
	return min(replaced.Add(KeepTime).Sub(s.Now()), KeepTime)
}

// makeRoom waits until there are fewer than maxKept replaced sets.
func (s *set) makeRoom(ctx context.Context) error {
	if _, err := s.sweep(ctx); err != nil {
		return err
	}
	before, _ := s.replaced()
	if len(before) < maxKept {
		return nil
	}
	timer := time.NewTimer(max(0, s.wait(before[1])))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("wait for the readers of %d earlier versions: %w", len(before), context.Cause(ctx))
	}
	return s.drop(ctx, before[0]) // regardless of the clock
}

// dropReplaced removes all replaced sets and reports whether there were any.
func (s *set) dropReplaced(ctx context.Context) (gone bool, err error) {
	before, _ := s.replaced()
	for _, name := range before {
		err = errors.Join(err, s.drop(ctx, name))
	}
	return len(before) > 0, err
}

func (s *set) drop(ctx context.Context, name string) error {
	if err := s.discard(ctx, name); err != nil {
		return fmt.Errorf("remove the files of an earlier version: %w", err)
	}
	delete(s.held, name)
	if i, found := slices.BinarySearch(s.sets, name); found {
		s.sets = slices.Delete(s.sets, i, i+1)
	}
	return nil
}
