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

// scoreFile holds how readily the kernel ends this process when memory is short.
const scoreFile = "/proc/self/oom_score_adj"

// sizeFile holds this process's size in pages.
const sizeFile = "/proc/self/statm"

// bounded returns a handler that may use at most the given bytes of memory in addition
// to what the process already uses. A call that needs more ends the process. Only a
// helper may call it.
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
		// Make the garbage collector work harder before the limit is reached.
		soft := debug.SetMemoryLimit(most / 4 * 3)
		defer func() {
			// Restore the helper's limits: raising a soft limit needs no privilege.
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

// dataSize returns how much private memory the process has, as RLIMIT_DATA counts it.
func dataSize() (uint64, error) {
	text, err := os.ReadFile(sizeFile)
	if err != nil {
		return 0, fmt.Errorf("read the size of this process: %w", err)
	}
	const data = 5 // the field's index
	fields := strings.Fields(string(text))
	if len(fields) <= data {
		return 0, fmt.Errorf("read the size of this process: %s has %q: %w", sizeFile, text, unix.EINVAL)
	}
	pages, err := strconv.ParseUint(fields[data], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the size of this process: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

// dropProtection removes the protection from the out-of-memory killer that the process
// inherited from the daemon. It is not restored.
func dropProtection() error {
	text, err := os.ReadFile(scoreFile)
	if err != nil {
		return fmt.Errorf("read the out-of-memory score of this process: %w", err)
	}
	score, err := strconv.Atoi(string(text[:max(0, len(text)-1)]))
	if err == nil && score < 0 {
		err = os.WriteFile(scoreFile, []byte("0"), 0)
	}
	if err != nil {
		return fmt.Errorf("raise the out-of-memory score of this process: %w", err)
	}
	return nil
}

// withBounds returns the service with each handler bounded by its entry in Memory.
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
