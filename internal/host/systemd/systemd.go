// Package systemd reports readiness and liveness to systemd: sd_notify(3) and the
// watchdog of sd_watchdog_enabled(3).
//
// Owns: the datagrams to NOTIFY_SOCKET, and which descriptors systemd passed.
//
// Does not: decide what ready or alive means; its callers do.
//
// Concurrency: a [Notifier] may be used by any goroutine.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// Notifier sends states to systemd. The zero value sends nothing, for a process that systemd did not
// start.
type Notifier struct {
	socket string
	// every is how often systemd wants a sign of life; 0 if it wants none.
	every time.Duration
}

// New reads the variables NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, which systemd sets for process
// pid, with getenv. It fails if they make no sense.
func New(getenv func(string) string, pid int) (Notifier, error) {
	n := Notifier{socket: getenv("NOTIFY_SOCKET")}
	if n.socket == "" {
		return n, nil
	}
	if n.socket[0] != '/' && n.socket[0] != '@' {
		return Notifier{}, fmt.Errorf("NOTIFY_SOCKET=%s: must be a path, or an abstract name that begins with @", n.socket)
	}
	usec := getenv("WATCHDOG_USEC")
	if of := getenv("WATCHDOG_PID"); usec == "" || of != "" && of != strconv.Itoa(pid) {
		return n, nil // no watchdog, or that of another process
	}
	us, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || us <= 0 {
		return Notifier{}, fmt.Errorf("WATCHDOG_USEC=%s: must be a number of microseconds above 0", usec)
	}
	n.every = time.Duration(us) * time.Microsecond
	return n, nil
}

// Wanted reports whether systemd wants any notification.
func (n Notifier) Wanted() bool { return n.socket != "" }

// Notify sends states such as READY=1, STOPPING=1 or STATUS=words. It replaces a line break in a state by
// a space, because a line break would begin another state.
func (n Notifier) Notify(states ...string) error {
	if n.socket == "" {
		return nil
	}
	lines := make([]string, len(states))
	for i, s := range states {
		lines[i] = strings.ReplaceAll(s, "\n", " ")
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}

// Watch gives systemd a sign of life as often as it wants one, until ctx ends, while alive returns nil in
// time. Systemd restarts a daemon whose alive hangs or fails; the log says why.
func (n Notifier) Watch(ctx context.Context, alive func(context.Context) error, log *slog.Logger) {
	if n.every == 0 {
		return
	}
	every := n.every / 3 // so that one late sign does no harm
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		err := n.sign(ctx, alive, every)
		if err != nil && ctx.Err() == nil {
			log.Error("no sign of life for systemd", "err", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n Notifier) sign(ctx context.Context, alive func(context.Context) error, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := alive(ctx); err != nil {
		return err
	}
	return n.Notify("WATCHDOG=1")
}
