package mount

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fsContext is a file system being set up (fsopen or fspick).
type fsContext int

// ContextError is the kernel's refusal to set up a file system, with its messages.
type ContextError struct {
	Messages []string // "ext4: Unknown parameter 'x'"
	Err      error
}

func (e *ContextError) Error() string {
	if len(e.Messages) == 0 {
		return e.Err.Error() + " (the kernel log may say why)"
	}
	return fmt.Sprintf("%v: %s", e.Err, strings.Join(e.Messages, "; "))
}

func (e *ContextError) Unwrap() error { return e.Err }

func (c fsContext) close() { unix.Close(int(c)) }

// set passes one option: "key=value", or a flag.
func (c fsContext) set(option string) error {
	key, value, hasValue := strings.Cut(option, "=")
	var err error
	if hasValue {
		if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
			value = value[1 : n-1] // mount(8) quotes values that contain commas
		}
		err = unix.FsconfigSetString(int(c), key, value)
	} else {
		err = unix.FsconfigSetFlag(int(c), key)
	}
	if err != nil {
		return c.explain("option "+option, err)
	}
	return nil
}

// explain adds to err what the kernel has logged to the context since the last read.
func (c fsContext) explain(what string, err error) error {
	var messages []string
	buf := make([]byte, 4096)
	for range 16 {
		n, rerr := unix.Read(int(c), buf)
		if rerr != nil || n == 0 {
			break // ENODATA: no more messages
		}
		// A message is "e text", "w text" or "i text": error, warning, information.
		text := strings.TrimSpace(string(buf[:n]))
		if len(text) > 2 && text[1] == ' ' {
			text = text[2:]
		}
		messages = append(messages, text)
	}
	return &ContextError{Messages: messages, Err: fmt.Errorf("%s: %w", what, err)}
}

// mount creates the file system as a detached mount.
func (c fsContext) mount(attributes int) (int, error) {
	if err := unix.FsconfigCreate(int(c)); err != nil {
		return -1, c.explain("create", err)
	}
	fd, err := unix.Fsmount(int(c), unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return -1, c.explain("fsmount", err)
	}
	return fd, nil
}

func openContext(fsType string) (fsContext, error) {
	fd, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	if err == unix.ENODEV {
		return -1, fmt.Errorf("file system %q is unknown to this kernel: %w", fsType, err)
	}
	return fsContext(fd), os.NewSyscallError("fsopen", err)
}
