package server

import (
	"fmt"
	"time"
)

// ladderText describes a failing unmount's current step and the next one.
func (s step) ladderText(now time.Time) string {
	c := s.unmount
	text := fmt.Sprintf("%s of %s", c.Step, c.Path)
	switch {
	case s.inFlight:
		text += ", under way for " + Age(s.since, now)
	case !c.Since.IsZero():
		text += ", failing for " + Age(c.Since, now)
	}
	switch {
	case c.Next == "":
		return text + "; no harder step follows automatically; csi-volmgr retry --help describes them, and they may lose data"
	case c.At.After(now):
		return fmt.Sprintf("%s; by policy %s comes in %s, which may lose data", text, c.Next, Age(now, c.At))
	default:
		return fmt.Sprintf("%s; by policy %s comes next, which may lose data", text, c.Next)
	}
}
