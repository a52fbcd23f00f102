package named

import (
	"fmt"
	"time"
)

const (
	// Linger is how long a volume stays wanted after its last use: podman mounts, unmounts and
	// mounts again at one container's start (podman#16339).
	Linger = 5 * time.Second
	// firstPause and lastPause bound how long after a look that found a holder the next one is:
	// the kernel does not say when a mount goes in another mount namespace.
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// Holder is who has a volume mounted, or a file of it open, beside csi-volmgr.
type Holder struct {
	// PID and Program are one process of it; 0 and "" for a mount in the host's namespace.
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	// Container is the id of the container that the process is in; "" for none.
	Container string `json:"container,omitempty"`
	// Path is where the holder has it, as it sees it.
	Path string `json:"path"`
}

func (h Holder) String() string {
	switch {
	case h.Container != "":
		return fmt.Sprintf("container %.12s (%s, process %d) at %s", h.Container, h.Program, h.PID, h.Path)
	case h.PID != 0:
		return fmt.Sprintf("process %d (%s) at %s", h.PID, h.Program, h.Path)
	}
	return "the mount at " + h.Path
}

// look is what the kernel showed of a volume's holders.
type look struct {
	at    time.Time // when the look began; zero: there was none since the last use
	found []Holder
	err   error // why it is not known
	again int   // how many looks in a row found a holder, or failed
}

// facts are what is known of a volume beside its row.
type facts struct {
	// pending are the mounts that are asked for and not answered yet.
	pending int
	// lastUse is when a use began or ended last, or this run did.
	lastUse time.Time
	// awaited is until when a mount that its caller gave up may be asked for again.
	awaited time.Time
	look    look
}

// move is what is to be done about a volume's pod.
type move int

const (
	stay  move = iota // nothing until an event, or until the time that goes with it
	ask               // look who holds the volume
	leave             // no use is left: the pod is taken back
)

// next decides when a volume that is listed is no longer wanted: when no use is counted or
// pending, the linger is over, and a look that began after it has found no holder. until is
// when to decide anew; zero is at the next event.
func next(v Volume, f facts, now time.Time) (m move, until time.Time) {
	end := f.lastUse.Add(Linger)
	if f.awaited.After(end) {
		end = f.awaited
	}
	switch {
	case v.Removing:
		return stay, time.Time{} // what removes it looks for itself
	case !v.Listed || v.Standing || f.pending > 0 || v.count() > 0:
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

// pause is how long after the n-th look in a row that found a holder the next one is.
func pause(n int) time.Duration {
	return min(firstPause<<min(max(n-1, 0), 5), lastPause)
}
