package mount

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// Fault says why a file system rejects writes: it was shut down after an error, or it
// became read-only after one. The zero value means that it is read-only and the mount
// table does not say why.
type Fault struct{ ShutDown, AfterError bool }

// Options of a file system that rejects writes; optionReadOnly may be intended.
const (
	optionReadOnly   = "ro"
	optionShutDown   = "shutdown"
	optionAfterError = "emergency_ro"
)

// Faults returns, by path, the mounts at and below the directory under whose file systems
// reject writes, whether they were mounted read-only or became so after an error. The
// kernel does not announce the latter: the mount table changes without a notification,
// and since Linux 6.13 ext4 shows it by an option only. Faults does not ask the storage.
func (k *Kernel) Faults(ctx context.Context, under string) (map[string]Fault, error) {
	faults, err := inLane(ctx, k.lanes, lane{"read the mount table", under}, func() (map[string]Fault, error) {
		if _, err := k.canonical(under); err != nil {
			return nil, err
		}
		if !k.has(MountRoot) {
			data, err := k.mountinfo()
			if err != nil {
				return nil, err
			}
			return readFaults(bytes.NewReader(data), under)
		}
		table, err := os.Open("/proc/self/mountinfo")
		if err != nil {
			return nil, err
		}
		defer table.Close()
		return readFaults(table, under)
	})
	if err != nil {
		return nil, fmt.Errorf("look for file systems with errors below %s: %w", under, err)
	}
	return faults, nil
}

// readFaults searches a mount table. It runs periodically, so it allocates nothing for a
// healthy mount.
func readFaults(table io.Reader, under string) (map[string]Fault, error) {
	faults := map[string]Fault{} // by escaped path
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		if len(faults) > 0 { // the topmost mount at a path comes last
			delete(faults, string(rawPath(line)))
		}
		if !mayHaveFault(line) {
			continue
		}
		r, err := parseRow(string(line))
		if err != nil {
			return nil, fmt.Errorf("mountinfo line %d: %w", n, err)
		}
		if f, faulty := faultOf(r.superOptions); faulty && pathname.Within(r.path, under) {
			faults[string(rawPath(line))] = f
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	found := make(map[string]Fault, len(faults))
	for path, f := range faults {
		found[unescape(path)] = f
	}
	return found, nil
}

// maxLine exceeds any line: its paths and options have at most a page each, escaped.
const maxLine = 1 << 20

// rawPath returns the fifth field of a mount table line.
func rawPath(line []byte) []byte {
	for range 4 {
		_, line, _ = bytes.Cut(line, []byte(" "))
	}
	path, _, _ := bytes.Cut(line, []byte(" "))
	return path
}

// mayHaveFault returns false for lines in which [faultOf] finds nothing.
func mayHaveFault(line []byte) bool {
	_, options, _ := bytes.Cut(line, []byte(" - ")) // then file system, source, options
	for range 2 {
		_, options, _ = bytes.Cut(options, []byte(" "))
	}
	for more := true; more; {
		var option []byte
		option, options, more = bytes.Cut(options, []byte(","))
		switch string(option) {
		case optionReadOnly, optionShutDown, optionAfterError:
			return true
		}
	}
	return false
}

// faultOf reports whether a file system with these options rejects writes, and why.
func faultOf(superOptions []string) (f Fault, faulty bool) {
	has := func(option string) bool { return slices.Contains(superOptions, option) }
	f = Fault{ShutDown: has(optionShutDown), AfterError: has(optionAfterError)}
	return f, f != Fault{} || has(optionReadOnly)
}
