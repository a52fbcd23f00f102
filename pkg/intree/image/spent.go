package image

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/image/unpack"
	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
)

// ErrSpent means that an image is not unpacked again, since it took what there is
// when it was.
var ErrSpent = errors.New("not unpacked again")

const (
	// maxLosses is how many helpers an image may cost. One may have been killed for
	// another reason.
	maxLosses = 2
	// maxSpent bounds the images that are remembered.
	maxSpent = 1000
)

// spent is how an image could not be unpacked.
type spent struct {
	err    error
	had    unpack.Space // free before
	losses int
}

// again returns why the image with the tree is not to be unpacked again, nil where
// it may be. now is what is free.
func (d *Driver) again(tree string, now unpack.Space) error {
	d.mu.Lock()
	s, before := d.spent[tree]
	d.mu.Unlock()
	switch {
	case !before:
		return nil
	case full(s.err):
		if more(now.Bytes, s.had.Bytes) || more(now.Files, s.had.Files) {
			return nil
		}
		return fmt.Errorf("%w until a tenth more is free than the %d bytes and %d files then: %w", ErrSpent, s.had.Bytes,
			s.had.Files, s.err)
	case errors.Is(s.err, isolate.ErrLost) && s.losses < maxLosses:
		return nil
	}
	return fmt.Errorf("%w before csi-volmgr restarts: %w", ErrSpent, s.err)
}

// full reports whether the disk was too small, for the image or for what others
// wrote meanwhile.
func full(err error) bool {
	return errors.Is(err, unpack.ErrFull) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// more reports whether a tenth more is free than was.
func more(now, was int64) bool { return now-was > was/10 }

// remember notes how unpacking an image ended.
func (d *Driver) remember(tree string, had unpack.Space, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := spent{err: err, had: had, losses: d.spent[tree].losses}
	if errors.Is(err, isolate.ErrLost) {
		s.err = fmt.Errorf("it may have taken more than the %d MiB that a helper may have: %w", helperMemory>>20, err)
		s.losses++
	} else if !errors.Is(err, unpack.ErrLayer) && !full(err) {
		delete(d.spent, tree)
		return
	}
	if _, known := d.spent[tree]; d.spent == nil || !known && len(d.spent) >= maxSpent {
		d.spent = map[string]spent{} // each is tried once more
	}
	d.spent[tree] = s
}

// free is what is free for the images.
func free(top *os.File) (unpack.Space, error) {
	space, _, err := unpack.Free(top)
	return space, err
}
