package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Run serves a driver and its registration until ctx ends. Then it returns nil. If one of the two
// fails, it stops the other and returns the error.
func Run(ctx context.Context, c Config, r RegisterConfig) (err error) {
	d, err := New(c)
	if err != nil {
		return fmt.Errorf("start the local driver: %w", err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, dir := range []string{filepath.Dir(r.Endpoint), r.Dir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("make the local driver's directories: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	registered := make(chan error, 1)
	go func() {
		defer cancel()
		registered <- d.Register(ctx, r)
	}()
	err = d.Serve(ctx, r.Endpoint)
	cancel()
	return errors.Join(err, <-registered)
}
