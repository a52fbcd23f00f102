package mount

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/csi-volmgr/csi-volmgr/pkg/pathname"
)

// Fault is how a file system takes no more writes: it was shut down after an error,
// it is read-only after one, or the zero value, it is read-only and the mount table
// does not say why.
type Fault struct{ ShutDown, AfterError bool }

// Options of a file system that takes no writes: the first also where it is meant so.
const (
	optionReadOnly   = "ro"
	optionShutDown   = "shutdown"
	optionAfterError = "emergency_ro"
)

// Faults returns, by path, the mounts at and below the directory under whose file
// system takes no more writes: one that was mounted so is among them, and one that
// has become so after an error. Of the latter the kernel tells
// nobody: the mount table changes without a notification, and since Linux 6.13
// ext4 shows it by an option alone. No storage is asked.
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

// readFaults looks through a mount table. It is done again and again while nothing
// happens, so nothing is made for a mount that is well.
func readFaults(table io.Reader, under string) (map[string]Fault, error) {
	faults := map[string]Fault{} // by path as the table has it
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		if len(faults) > 0 { // the topmost of a path comes last
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

// maxLine is beyond any line: its paths and options are a page each, escaped.
const maxLine = 1 << 20

// rawPath is the fifth field of a line of the mount table.
func rawPath(line []byte) []byte {
	for range 4 {
		_, line, _ = bytes.Cut(line, []byte(" "))
	}
	path, _, _ := bytes.Cut(line, []byte(" "))
	return path
}

// mayHaveFault is false for lines that [faultOf] would say nothing about either.
func mayHaveFault(line []byte) bool {
	_, options, _ := bytes.Cut(line, []byte(" - ")) // file system, source, and these
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

// faultOf says by a file system's options whether and how it takes no writes.
func faultOf(superOptions []string) (f Fault, faulty bool) {
	f = Fault{ShutDown: hasOption(superOptions, optionShutDown), AfterError: hasOption(superOptions, optionAfterError)}
	return f, f != Fault{} || hasOption(superOptions, optionReadOnly)
}
