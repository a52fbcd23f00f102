package main

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// quitKeys returns a context that ends when q is typed at the terminal in; if in is no terminal, it
// returns ctx. Interrupts still come as signals. end restores the terminal.
func quitKeys(ctx context.Context, in io.Reader) (_ context.Context, end func(), err error) {
	keyboard, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(keyboard.Fd())) {
		return ctx, func() {}, nil
	}
	fd := int(keyboard.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, nil, os.NewSyscallError("ioctl TCGETS", err)
	}
	now := *old
	now.Lflag &^= unix.ICANON | unix.ECHO // read each key at once, without echo
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	wake, waker, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &now); err != nil {
		return nil, nil, errors.Join(os.NewSyscallError("ioctl TCSETS", err), wake.Close(), waker.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	read := make(chan struct{})
	go func() {
		defer close(read)
		if waitForQ(fd, int(wake.Fd())) {
			cancel()
		}
	}()
	return ctx, func() {
		_ = waker.Close()
		<-read
		_ = wake.Close()
		cancel()
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, old) // a terminal that is gone needs no restoring
	}, nil
}

// waitForQ reads keys until q is typed. It returns false if wake is closed first, or if the keys end.
func waitForQ(keys, wake int) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(keys), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		} else if err != nil || fds[1].Revents != 0 {
			return false
		}
		var b [16]byte
		n, err := unix.Read(keys, b[:])
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n <= 0 {
			return false
		}
		for _, key := range b[:n] {
			if key == 'q' || key == 'Q' {
				return true
			}
		}
	}
}
