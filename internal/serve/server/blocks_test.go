package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// blockStorage answers requests for blocks.
type blockStorage struct {
	server.Storage
	blocks func(ctx context.Context, q server.BlocksQuery, each func([]server.BlockRange) error) (int64, error)
}

func (s blockStorage) Blocks(ctx context.Context, q server.BlocksQuery, each func([]server.BlockRange) error) (int64, error) {
	return s.blocks(ctx, q, each)
}

// serveBlocks starts a server with a storage, and returns a client of it.
func serveBlocks(t *testing.T, s server.Storage) (*client.Client, func() error) {
	t.Helper()
	socket, stop := server.ServeStorage(t, server.NewBackend(server.Facts{}), s)
	c := client.New(socket)
	t.Cleanup(c.Close)
	return c, stop
}

var sinceMonday = server.BlocksQuery{Namespace: "default", Name: "tuesday", Base: "monday"}

func none([]server.BlockRange) error { return nil }

// Each of the storage's answers arrives before the next one exists; the last line has the size.
func TestBlocksAreStreamed(t *testing.T) {
	on := make(chan struct{})
	c, _ := serveBlocks(t, blockStorage{blocks: func(_ context.Context, q server.BlocksQuery, each func([]server.BlockRange) error) (int64, error) {
		if q != sinceMonday {
			return 0, fmt.Errorf("asked for %+v", q)
		}
		err := each([]server.BlockRange{{Offset: 0, Size: 4096}})
		<-on
		return 1 << 20, errors.Join(err, each([]server.BlockRange{{Offset: 8192, Size: 4096}, {Offset: 16384, Size: 1}}))
	}})
	var got []server.BlockRange
	capacity, err := c.Blocks(t.Context(), sinceMonday, func(ranges []server.BlockRange) error {
		if got == nil {
			close(on)
		}
		got = append(got, ranges...)
		return nil
	})
	if want := []server.BlockRange{{0, 4096}, {8192, 4096}, {16384, 1}}; err != nil || capacity != 1<<20 || !slices.Equal(got, want) {
		t.Errorf("got %v of %d, %v", got, capacity, err)
	}
}

// A failure is the response's status code before the first range, and its last line afterwards. A daemon that stops,
// or that is in a cluster, says so.
func TestBlocksThatAreNotAll(t *testing.T) {
	gone := fmt.Errorf("%w: snapshot default/tuesday", server.ErrNotFound)
	for _, begun := range []bool{false, true} {
		c, _ := serveBlocks(t, blockStorage{blocks: func(_ context.Context, _ server.BlocksQuery, each func([]server.BlockRange) error) (int64, error) {
			if begun {
				return 0, errors.Join(each([]server.BlockRange{{0, 1}}), gone)
			}
			return 0, gone
		}})
		told := 0
		_, err := c.Blocks(t.Context(), sinceMonday, func(ranges []server.BlockRange) error { told += len(ranges); return nil })
		if !errors.Is(err, server.ErrNotFound) || !strings.Contains(err.Error(), "snapshot default/tuesday") || (told > 0) != begun {
			t.Errorf("begun %v: told %d, %v", begun, told, err)
		}
	}
	c, _ := serveBlocks(t, nil)
	if _, err := c.Blocks(t.Context(), sinceMonday, none); !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "in a cluster") {
		t.Errorf("in a cluster: %v", err)
	}
	c, _ = serveBlocks(t, blockStorage{})
	for _, q := range []server.BlocksQuery{{Namespace: "default", Name: "a/b"}, {Namespace: "default", Name: "a", Base: "../b"}} {
		if _, err := c.Blocks(t.Context(), q, none); !errors.Is(err, server.ErrInvalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	asked := make(chan struct{})
	c, stop := serveBlocks(t, blockStorage{blocks: func(ctx context.Context, _ server.BlocksQuery, each func([]server.BlockRange) error) (int64, error) {
		err := each([]server.BlockRange{{0, 1}})
		close(asked)
		<-ctx.Done()
		return 0, errors.Join(err, context.Cause(ctx))
	}})
	ended := make(chan error, 1)
	go func() {
		_, err := c.Blocks(context.Background(), sinceMonday, none)
		ended <- err
	}()
	<-asked
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the daemon stops") {
		t.Errorf("of a daemon that stops: %v", err)
	}
}
