package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// Limits for resuming an answer after its stream broke.
const (
	// maxRetries limits how often one answer is resumed.
	maxRetries = 6
	// firstPause is the first pause. Each pause is twice the one before: a minute in total.
	firstPause = time.Second
)

// Errors of [Controller.Blocks], in addition to ErrUnreadable.
var (
	// ErrNoSnapshot means that there is no such snapshot.
	ErrNoSnapshot = errors.New("no such snapshot")
	// ErrNoBlocks means that no driver can be asked at present.
	ErrNoBlocks = errors.New("its blocks cannot be listed")
)

var (
	// errAway means that the driver is not up. If it was already being read, it may come back.
	errAway = fmt.Errorf("%w: its driver is away", ErrNoBlocks)
	// errBroken means that the stream broke before its end.
	errBroken = errors.New("the stream broke")
	// errSilent means that the driver neither sent a message in time nor ended the stream.
	errSilent = errors.New("no message came in time")
)

// BlockQuery selects the blocks to list.
type BlockQuery struct {
	Snapshot Key
	// Base, if it is set, is an older snapshot of the same volume: only blocks that changed since
	// then are listed.
	Base Key
}

// Range is a range of a volume's bytes.
type Range struct{ Offset, Size int64 }

// Blocks asks the driver of a snapshot for its blocks (CSI 1.13 GetMetadataAllocated,
// GetMetadataDelta) and calls each with the ranges of every message as it arrives: ascending, and
// without overlap. It does not buffer them. If the stream breaks, Blocks resumes it at the same
// offset, a limited number of times. It returns the size of the volume in bytes, or 0 if the driver
// reported nothing. After an error the ranges are incomplete. A snapshot is not deleted while it is
// being read; if its deletion was requested, a broken stream is not resumed.
func (c *Controller) Blocks(ctx context.Context, q BlockQuery, each func([]Range) error) (int64, error) {
	r := &blockReader{c: c, query: q, each: each}
	defer r.release()
	if err := r.read(ctx); err != nil {
		return 0, fmt.Errorf("blocks of snapshot %s: %w", q.Snapshot, err)
	}
	return r.capacity, nil
}

// blockReader reads one answer, from one stream or several.
type blockReader struct {
	c     *Controller
	query BlockQuery
	each  func([]Range) error

	capacity int64
	style    csi.BlockMetadataType
	size     int64 // of each range, if the style is FIXED_LENGTH
	next     int64 // the end of the last range
	asked    bool  // the driver has been asked at least once
	holds    bool  // the snapshots are counted in reading; owned by Run
}

// hold prevents the deletion of the snapshots until release. It runs in Run's goroutine.
func (r *blockReader) hold() {
	if r.holds {
		return
	}
	r.holds = true
	r.c.snapshots.reading[r.query.Snapshot]++
	r.c.snapshots.reading[r.query.Base]++ // without a base, it is the zero key
}

// release undoes hold and plans the snapshots again, because their deletion may wait for it.
func (r *blockReader) release() {
	r.c.post(func(context.Context) {
		if !r.holds {
			return
		}
		for _, key := range []Key{r.query.Snapshot, r.query.Base} {
			if r.c.snapshots.reading[key]--; r.c.snapshots.reading[key] > 0 {
				continue
			}
			delete(r.c.snapshots.reading, key)
			switch e := r.c.snapshots.entries[key]; {
			case e == nil:
			case e.group != nil:
				r.c.touchRows(e.group)
			default:
				r.c.snapshots.touch(key)
			}
		}
	})
}

func (r *blockReader) read(ctx context.Context) error {
	pause := firstPause
	for broken := 0; ; broken++ {
		err := r.once(ctx)
		if errors.Is(err, errBroken) && r.capacity > 0 && r.next == r.capacity {
			return nil // no range can follow the last byte of the volume
		}
		goesOn := errors.Is(err, errBroken) || r.asked && errors.Is(err, errAway)
		if err == nil || !goesOn || broken == maxRetries {
			return err
		}
		r.c.log.Warn("stream of snapshot blocks broke and is resumed", "snapshot", r.query.Snapshot.String(),
			"offset", r.next, "pause", pause, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-r.c.done:
			timer.Stop()
			return errStopped
		}
		pause *= 2
	}
}

// once reads one stream.
func (r *blockReader) once(ctx context.Context) error {
	var t blockTarget
	var refused error
	ask := func() {
		if t, refused = r.c.blockTarget(r.query); refused == nil {
			r.hold()
		}
	}
	if err := r.c.read(ctx, ask); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	secret, err := r.c.secret(ctx, t.secret)
	if err != nil {
		return err
	}
	r.asked = true
	if err := r.stream(ctx, t, secret); err != nil {
		return fmt.Errorf("driver %s: %w", t.driver.Name, err)
	}
	return nil
}

// stream asks the driver and reads its answer. The time between messages is bounded, the total time
// is not.
func (r *blockReader) stream(ctx context.Context, t blockTarget, secret map[string]string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(r.c.cfg.Deadline, func() { cancel(errSilent) })
	defer silence.Stop()
	recv, err := t.open(ctx, r.next, secret)
	for first := true; err == nil; {
		var m blockMessage
		if m, err = recv(); err != nil {
			break
		}
		silence.Stop()
		ranges, wrong := r.check(m, &first)
		if wrong != nil {
			return wrongAnswer(t.call(), wrong)
		}
		if len(ranges) > 0 {
			if err := r.each(ranges); err != nil {
				return err
			}
		}
		silence.Reset(r.c.cfg.Deadline)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	failed := callError(t.call(), err)
	// Canceled, because the connection is closed when a driver comes up again.
	if failed.Code == codes.Unavailable.String() || failed.Code == codes.Canceled.String() {
		return fmt.Errorf("%w: %w", errBroken, failed)
	}
	return failed
}

// blockMessage is a message of either kind of answer.
type blockMessage interface {
	GetBlockMetadataType() csi.BlockMetadataType
	GetVolumeCapacityBytes() int64
	GetBlockMetadata() []*csi.BlockMetadata
}

// check returns the ranges of a message, or what is wrong with it (CSI 1.13 "Metadata Format",
// GetMetadataAllocatedResponse). first means that this stream has returned no range yet; the first
// range may begin before the requested offset.
func (r *blockReader) check(m blockMessage, first *bool) ([]Range, error) {
	style, capacity := m.GetBlockMetadataType(), m.GetVolumeCapacityBytes()
	switch {
	case style != csi.BlockMetadataType_FIXED_LENGTH && style != csi.BlockMetadataType_VARIABLE_LENGTH:
		return nil, fmt.Errorf("block_metadata_type is %s: expected FIXED_LENGTH or VARIABLE_LENGTH", style)
	case r.style != csi.BlockMetadataType_UNKNOWN && style != r.style:
		return nil, fmt.Errorf("block_metadata_type is %s, and was %s before", style, r.style)
	case capacity <= 0:
		return nil, fmt.Errorf("volume_capacity_bytes is %d: expected the size of the volume", capacity)
	case r.capacity != 0 && capacity != r.capacity:
		return nil, fmt.Errorf("volume_capacity_bytes is %d, and was %d before", capacity, r.capacity)
	}
	r.style, r.capacity = style, capacity
	out := make([]Range, 0, len(m.GetBlockMetadata()))
	for _, b := range m.GetBlockMetadata() {
		one, err := r.checkRange(b, *first)
		if err != nil {
			return nil, err
		}
		*first = false
		r.next = one.Offset + one.Size
		out = append(out, one)
	}
	return out, nil
}

// checkRange returns one range without the part that was reported before the stream broke.
func (r *blockReader) checkRange(b *csi.BlockMetadata, first bool) (Range, error) {
	offset, size := b.GetByteOffset(), b.GetSizeBytes()
	whole := size
	if r.style == csi.BlockMetadataType_FIXED_LENGTH && offset >= 0 && offset < r.capacity {
		size = min(size, r.capacity-offset) // all ranges have one size, but the volume may end within the last
	}
	switch {
	case size <= 0 || offset < 0 || offset > r.capacity || size > r.capacity-offset:
		return Range{}, fmt.Errorf("byte_offset %d with size_bytes %d is outside a volume of %d bytes", offset, size,
			r.capacity)
	case r.style == csi.BlockMetadataType_FIXED_LENGTH && r.size != 0 && whole != r.size:
		return Range{}, fmt.Errorf("size_bytes at byte_offset %d is %d, and was %d before, with FIXED_LENGTH", offset, whole,
			r.size)
	case first && offset+size <= r.next && r.next > 0:
		return Range{}, fmt.Errorf("byte_offset %d with size_bytes %d ends before starting_offset %d", offset, size, r.next)
	case !first && offset < r.next:
		return Range{}, fmt.Errorf("byte_offset %d comes after a range that ends at %d: expected ascending ranges that do "+
			"not overlap", offset, r.next)
	}
	r.size = whole
	from := max(offset, r.next)
	return Range{Offset: from, Size: offset + size - from}, nil
}
