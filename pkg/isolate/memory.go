package isolate

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// scoreFile is how a process says how readily the kernel is to end it where memory
// is short.
const scoreFile = "/proc/self/oom_score_adj"

// sizeFile is how large this process is, in pages.
const sizeFile = "/proc/self/statm"

// bounded returns a handler that may take at most that much memory (bytes) beside
// what the process has. What takes more ends the process. Only a helper may call it.
func bounded(f Handler, most int64) Handler {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_DATA, &old); err != nil {
			return nil, os.NewSyscallError("getrlimit", err)
		}
		has, err := dataSize()
		if err != nil {
			return nil, err
		}
		now := unix.Rlimit{Cur: min(has+uint64(most), old.Max), Max: old.Max}
		if err := unix.Setrlimit(unix.RLIMIT_DATA, &now); err != nil {
			return nil, os.NewSyscallError("setrlimit", err)
		}
		// The collector works harder before the limit is reached.
		soft := debug.SetMemoryLimit(most / 4 * 3)
		defer func() {
			// Back to what the helper was: raising a soft limit needs no right.
			_ = unix.Setrlimit(unix.RLIMIT_DATA, &old)
			debug.FreeOSMemory()
			debug.SetMemoryLimit(soft)
		}()
		if err := dropProtection(); err != nil {
			return nil, err
		}
		return f(ctx, request)
	}
}

// dataSize is how much memory of its own the process has: what RLIMIT_DATA counts.
func dataSize() (uint64, error) {
	text, err := os.ReadFile(sizeFile)
	if err != nil {
		return 0, fmt.Errorf("learn the size of this process: %w", err)
	}
	const data = 5 // the field
	fields := strings.Fields(string(text))
	if len(fields) <= data {
		return 0, fmt.Errorf("learn the size of this process: %s has %q: %w", sizeFile, text, unix.EINVAL)
	}
	pages, err := strconv.ParseUint(fields[data], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("learn the size of this process: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

// dropProtection takes back that this process is among the last to be ended where
// memory is short, as it has it from the daemon. It stays so.
func dropProtection() error {
	text, err := os.ReadFile(scoreFile)
	if err != nil {
		return fmt.Errorf("learn which process the kernel ends first: %w", err)
	}
	score, err := strconv.Atoi(string(text[:max(0, len(text)-1)]))
	if err == nil && score < 0 {
		err = os.WriteFile(scoreFile, []byte("0"), 0)
	}
	if err != nil {
		return fmt.Errorf("let the kernel end this process before others: %w", err)
	}
	return nil
}

// withBounds returns the service as a helper has it.
func (s Service) withBounds() Service {
	handlers := make(map[string]Handler, len(s.Handlers))
	for name, f := range s.Handlers {
		if most := s.Memory[name]; most > 0 {
			f = bounded(f, most)
		}
		handlers[name] = f
	}
	s.Handlers = handlers
	return s
}
