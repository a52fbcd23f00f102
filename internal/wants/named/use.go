package named

import (
	"fmt"
	"time"
)

const (
	// Linger is how long a volume stays wanted after its last use, because podman mounts, unmounts
	// and mounts again while it starts one container (podman#16339).
	Linger = 5 * time.Second
	// firstPause and lastPause limit the pause after a look that found a holder. The kernel does
	// not announce an unmount in another mount namespace.
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// Holder is a process, container or mount outside csi-volmgr that holds a volume.
type Holder struct {
	// PID and Program identify one of its processes; 0 and "" for a mount in the host's namespace.
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	// Container is the id of the process's container, or "".
	Container string `json:"container,omitempty"`
	// Path is where the volume is mounted, as the holder sees it.
	Path string `json:"path"`
	// Detached: the holder has the volume through a mount that was unmounted lazily.
	Detached bool `json:"detached,omitempty"`
	// Unsure: what the holder has so may be another volume of the same file system.
	Unsure bool `json:"unsure,omitempty"`
}

func (h Holder) String() string {
	at := " at " + h.Path
	switch {
	case h.Unsure:
		at = ", which may hold it: a mount of this file system was unmounted lazily (umount -l) and is still in use"
	case h.Detached:
		at = ", which still uses a mount of it that was unmounted lazily (umount -l)"
	}
	switch {
	case h.Container != "":
		return fmt.Sprintf("container %.12s (%s, process %d)%s", h.Container, h.Program, h.PID, at)
	case h.PID != 0:
		return fmt.Sprintf("process %d (%s)%s", h.PID, h.Program, at)
	}
	return "the mount" + at
}

// look is what the kernel showed about a volume's holders.
type look struct {
	at    time.Time // when the look began; zero if there was none since the last use
	found []Holder
	err   error // why the holders are unknown
	again int   // how many looks in a row found a holder or failed
}

// facts is what is known about a volume besides its row.
type facts struct {
	// pending counts the mounts in progress, creates the Creates.
	pending, creates int
	// lastUse is when a use last began or ended, or when this run began.
	lastUse time.Time
	// awaited is until when a mount that its caller gave up may be requested again.
	awaited time.Time
	look    look
	// unheldSince is since when counted uses have had no holder, as far as this run has looked; zero if they have one.
	unheldSince time.Time
}

// move is what to do about a volume's pod.
type move int

const (
	stay  move = iota // nothing, until an event or the returned time
	ask               // ask who holds the volume
	leave             // withdraw the pod, because no use is left
)

// next decides whether a listed volume is still wanted. It is not if no use is counted or pending,
// the linger is over, and a look that began after that found no holder. until is when to decide
// again; zero means at the next event.
func next(v Volume, f facts, now time.Time) (m move, until time.Time) {
	end := f.lastUse.Add(Linger)
	if f.awaited.After(end) {
		end = f.awaited
	}
	switch {
	case v.Removing:
		return stay, time.Time{} // remove looks for holders itself
	case !v.Listed || v.Standing || f.pending > 0 || v.useCount() > 0:
		return stay, time.Time{}
	case now.Before(end):
		return stay, end
	case f.look.at.Before(end):
		return ask, time.Time{}
	case f.look.err == nil && len(f.look.found) == 0:
		return leave, time.Time{}
	default:
		if due := f.look.at.Add(pause(f.look.again)); now.Before(due) {
			return stay, due
		}
		return ask, time.Time{}
	}
}

// pause returns the pause after the n-th look in a row that found a holder.
func pause(n int) time.Duration {
	return min(firstPause<<min(max(n-1, 0), 5), lastPause)
}
