package localdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// compareBytes is how many bytes of two images are read at a time.
const compareBytes = 1 << 20

// nextData returns the first extent of an image at or after offset that holds data, in whole blocks
// and before end. ok is false if there is none.
func nextData(image *os.File, offset, end int64) (extent [2]int64, ok bool, err error) {
	start, err := unix.Seek(int(image.Fd()), offset, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || err == nil && start >= end {
		return extent, false, nil
	}
	if err != nil {
		return extent, false, fmt.Errorf("find data in %s: %w", image.Name(), err)
	}
	stop, err := unix.Seek(int(image.Fd()), start, unix.SEEK_HOLE)
	if err != nil {
		return extent, false, fmt.Errorf("find hole in %s: %w", image.Name(), err)
	}
	start = start / sizeUnit * sizeUnit
	stop = (stop + sizeUnit - 1) / sizeUnit * sizeUnit
	return [2]int64{start, min(stop, end)}, true, nil
}

// addAllocated adds the extents of an image that hold data to out.
func addAllocated(ctx context.Context, image *os.File, out *pages) error {
	for offset := out.from; offset < out.capacity; {
		extent, ok, err := nextData(image, offset, out.capacity)
		if err != nil || !ok {
			return err
		}
		if err := out.add(extent); err != nil {
			return err
		}
		offset = extent[1]
		if err := out.advance(ctx, offset); err != nil {
			return err
		}
	}
	return nil
}

// addChanged adds the blocks that differ between two images to out. It does not read where both
// have a hole. Holes, and everything after the end of the smaller image, count as zeros.
func addChanged(ctx context.Context, before, after *os.File, out *pages) error {
	c := comparison{before: before, after: after, out: out}
	c.a, c.b = make([]byte, compareBytes), make([]byte, compareBytes)
	for offset := out.from; offset < out.capacity; {
		first, ok, err := nextData(before, offset, out.capacity)
		if err != nil {
			return err
		}
		second, too, err := nextData(after, offset, out.capacity)
		if err != nil {
			return err
		}
		switch {
		case !ok && !too:
			return nil
		case !ok, too && second[0] < first[0]:
			first = second
		}
		if err := c.compare(ctx, first); err != nil {
			return err
		}
		offset = first[1]
	}
	return nil
}

// comparison compares two images.
type comparison struct {
	before, after *os.File
	out           *pages
	a, b          []byte
}

// compare compares an extent of the images.
func (c *comparison) compare(ctx context.Context, extent [2]int64) error {
	for at := extent[0]; at < extent[1]; {
		n := min(extent[1]-at, compareBytes)
		a, b := c.a[:n], c.b[:n]
		if err := errors.Join(readZeros(c.before, a, at), readZeros(c.after, b, at)); err != nil {
			return err
		}
		if !bytes.Equal(a, b) {
			if err := c.addDifferences(a, b, at); err != nil {
				return err
			}
		}
		at += n
		if err := c.out.advance(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// addDifferences adds the blocks that differ between a and b, which begin at offset.
func (c *comparison) addDifferences(a, b []byte, offset int64) error {
	for i := 0; i < len(a); i += sizeUnit {
		end := min(i+sizeUnit, len(a))
		if bytes.Equal(a[i:end], b[i:end]) {
			continue
		}
		if err := c.out.add([2]int64{offset + int64(i), offset + int64(end)}); err != nil {
			return err
		}
	}
	return nil
}

// readZeros reads len(buf) bytes at offset; beyond the end of the image it reads zeros.
func readZeros(image *os.File, buf []byte, offset int64) error {
	n, err := image.ReadAt(buf, offset)
	if errors.Is(err, io.EOF) {
		clear(buf[n:])
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", image.Name(), err)
	}
	return nil
}
