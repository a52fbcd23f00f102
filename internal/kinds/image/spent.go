package image

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
)

// ErrSpent means that an image is not unpacked again, because an earlier attempt used
// up all resources.
var ErrSpent = errors.New("not unpacked again")

const (
	// maxLosses is how many helpers an image may cost. One of them may have been killed
	// for another reason.
	maxLosses = 2
	// maxSpent bounds the number of images with remembered failures.
	maxSpent = 1000
)

// spent records failed attempts to unpack an image.
type spent struct {
	err    error
	had    unpack.Space // free space before the attempt
	losses int
}

// checkSpent returns an error if the image of the tree must not be unpacked again. now
// is the free space.
func (d *Driver) checkSpent(tree string, now unpack.Space) error {
	d.mu.Lock()
	s, before := d.spent[tree]
	d.mu.Unlock()
	switch {
	case !before:
		return nil
	case isFull(s.err):
		if muchMore(now.Bytes, s.had.Bytes) || muchMore(now.Files, s.had.Files) {
			return nil
		}
		return fmt.Errorf("%w until 10%% more is free than the %d bytes and %d files at that attempt: %w",
			ErrSpent, s.had.Bytes, s.had.Files, s.err)
	case errors.Is(s.err, isolate.ErrLost) && s.losses < maxLosses:
		return nil
	}
	return fmt.Errorf("%w before csi-volmgr restarts: %w", ErrSpent, s.err)
}

// isFull reports whether the disk was full, because of the image or because of others'
// writes meanwhile.
func isFull(err error) bool {
	return errors.Is(err, unpack.ErrFull) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// muchMore reports whether a tenth more is free than before.
func muchMore(now, was int64) bool { return now-was > was/10 }

// remember records the result of unpacking an image.
func (d *Driver) remember(tree string, had unpack.Space, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := spent{err: err, had: had, losses: d.spent[tree].losses}
	if errors.Is(err, isolate.ErrLost) {
		s.err = fmt.Errorf("it may have needed more than the %d MiB that a helper may use: %w", helperMemory>>20, err)
		s.losses++
	} else if !errors.Is(err, unpack.ErrLayer) && !isFull(err) {
		delete(d.spent, tree)
		return
	}
	if _, known := d.spent[tree]; d.spent == nil || !known && len(d.spent) >= maxSpent {
		d.spent = map[string]spent{} // each image gets another attempt
	}
	d.spent[tree] = s
}
