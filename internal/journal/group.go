package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// pending is a change whose caller waits until it is durable.
type pending struct {
	change change
	done   chan struct{} // closed when err is set
	err    error
}

// commit makes one change durable, in one write with all others that are queued at that
// moment. The first caller starts the writer, which ends when no caller waits; so an idle
// journal has no goroutine, and a lone caller waits for no timer.
func (b *Bolt) commit(ctx context.Context, c change) error {
	if len(c.values) == 0 {
		return nil
	}
	b.mu.Lock()
	if err := b.usable(ctx); err != nil {
		b.mu.Unlock()
		return err
	}
	p := b.enqueue(c)
	b.mu.Unlock()

	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return b.abandon(ctx, p)
	}
}

// enqueue must be called with mu held.
func (b *Bolt) enqueue(c change) *pending {
	p := &pending{change: c, done: make(chan struct{})}
	b.queue = append(b.queue, p)
	if !b.writing {
		b.writing = true
		b.writer.Go(b.write)
	}
	return p
}

// abandon takes p off the queue if its write has not begun.
func (b *Bolt) abandon(ctx context.Context, p *pending) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, p); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		return context.Cause(ctx)
	}
	select {
	case <-p.done:
		return p.err
	default:
		return fmt.Errorf("%w: %w", state.ErrUnknown, context.Cause(ctx))
	}
}

// write commits queued changes until the queue is empty. Close waits for it.
func (b *Bolt) write() {
	for {
		b.mu.Lock()
		idle := len(b.queue) == 0
		b.mu.Unlock()
		if idle {
			b.keepRoom()
			b.renewSpare()
		}
		b.mu.Lock()
		batch := b.queue
		b.queue = nil
		b.writing = len(batch) > 0
		b.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		b.opened.Do(b.copySpare)
		short := b.room()
		err := b.withFile(func() error { return b.update(batch, short) })
		if noRoom(err) {
			err = fmt.Errorf("%w: %w", state.ErrFull, err)
		}
		err = b.refusal(err)
		b.mu.Lock()
		b.refused = err
		b.mu.Unlock()
		b.written++
		for _, p := range batch {
			if p.err == nil {
				p.err = err
			}
			close(p.done)
		}
	}
}

// update runs one durable transaction. If the disk is short of room, it leaves out
// changes that begin something.
func (b *Bolt) update(batch []*pending, short error) error {
	next := b.sums.clone()
	err := b.db.Update(func(tx *bolt.Tx) error {
		for _, p := range batch {
			if short != nil && begins(tx, p.change) {
				p.err = short
				continue
			}
			if err := next.put(tx, p.change); err != nil {
				return err
			}
		}
		return next.write(tx)
	})
	if err == nil {
		b.sums = next
	}
	return err
}

// noteDamage gives up the file for the rest of this process if err says that it is
// damaged or that the disk failed: after a failed write-back the kernel may present as
// written what is not on the disk. A full disk does not count.
func (b *Bolt) noteDamage(err error) error {
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, unix.EIO) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveUp(fmt.Errorf("journal %s cannot be used until the daemon is restarted: %w", b.path, err))
	return b.broken
}

// giveUp must be called with mu held.
func (b *Bolt) giveUp(err error) {
	if b.broken == nil {
		b.broken = err
		close(b.givenUp)
	}
}
