package mount

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Watch returns a channel that receives a value after the mount table changed: a mount
// was added, removed or got other options. Changes before the value is received are
// combined into one value. The channel is closed when ctx ends, or if polling fails.
//
// It uses poll(2) on /proc/self/mountinfo, which every kernel supports and which also
// reports remounts; fanotify's mount events do not.
func (k *Kernel) Watch(ctx context.Context) (<-chan struct{}, error) {
	// Not an os.File: the runtime's poller would consume the events; each is reported once.
	table, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("watch the mount table: %w", os.NewSyscallError("open", err))
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(table)
		return nil, fmt.Errorf("watch the mount table: %w", os.NewSyscallError("eventfd", err))
	}
	changes := make(chan struct{}, 1) // buffers the one value
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		unix.Write(wake, one[:]) // an eventfd does not block here
	})
	go func() {
		pollTable(table, wake, changes)
		unix.Close(table)
		if !stop() {
			<-woken
		}
		unix.Close(wake)
		close(changes)
	}()
	return changes, nil
}

// pollTable sends on changes at each change of table, until wake can be read.
func pollTable(table, wake int, changes chan<- struct{}) {
	fds := []unix.PollFd{{Fd: int32(table), Events: unix.POLLPRI}, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || fds[1].Revents != 0 {
			return
		}
		select {
		case changes <- struct{}{}:
		default:
		}
	}
}
