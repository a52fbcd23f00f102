package disk

import (
	"errors"
	"testing"
)

// oneByte is a device of zeros with one byte of data.
type oneByte int64

func (at oneByte) ReadAt(p []byte, from int64) (int, error) {
	clear(p)
	if i := int64(at) - from; i >= 0 && i < int64(len(p)) {
		p[i] = 1
	}
	return len(p), nil
}

// A disk whose head was wiped still has the copies of its superblock.
//
// Faults: A029.
func TestCopiesOfSuperblocksAreData(t *testing.T) {
	const size = 300 << 30
	for _, at := range []int64{64 << 20, 128<<20 + 56, 384<<20 + 56, 256<<30 + 64, 16<<20 - 1, size - 16<<20, size - 1} {
		if err := blank(t.Context(), oneByte(at), size); !errors.Is(err, ErrNotBlank) {
			t.Errorf("byte %d: got %v", at, err)
		}
	}
	if err := blank(t.Context(), oneByte(32<<20), size); err != nil {
		t.Errorf("data in the middle, which is not looked for: %v", err)
	}
	if err := blank(t.Context(), oneByte(-1), 0); !errors.Is(err, ErrNotBlank) {
		t.Errorf("no size: got %v", err)
	}
}
