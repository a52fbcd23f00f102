package named

import (
	"context"
	"fmt"
	"maps"
	"time"
)

// Engine is a process that asked for a mount, such as dockerd. Start tells it from a later process with its id.
type Engine struct {
	PID   int32  `json:"pid"`
	Start string `json:"start"`
}

// engineOf returns the process with an id; it is zero if that is unknown.
func (p *Provider) engineOf(pid int32) Engine {
	if pid == 0 || p.c.Started == nil {
		return Engine{}
	}
	return Engine{PID: pid, Start: p.c.Started(pid)}
}

// withEngine returns v with the process that asked for a use; a zero one says that it is unknown.
func (v Volume) withEngine(id string, e Engine) Volume {
	engines := maps.Clone(v.Engines)
	delete(engines, id)
	if e.Start != "" {
		if engines == nil {
			engines = map[string]Engine{}
		}
		engines[id] = e
	}
	if v.Engines = engines; len(engines) == 0 {
		v.Engines = nil
	}
	return v
}

// engineRuns reports whether a process that asked for one of the counted uses still runs. It ends its uses itself, even
// where the kernel shows no process that has the volume.
func (p *Provider) engineRuns(v Volume) bool {
	for id := range v.Uses {
		if e, known := v.Engines[id]; known && e == p.engineOf(e.PID) {
			return true
		}
	}
	return false
}

// see notes what the kernel shows about a volume with counted uses.
func (p *Provider) see(r *row, found []Holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(found) > 0 || r.v.useCount() == 0:
		r.unheldSince = time.Time{}
	case r.unheldSince.IsZero():
		r.unheldSince = time.Now()
	}
}

// Unheld says, if the volume has counted uses and the kernel shows no process that has it, since when csi-volmgr has
// seen that, and what ends them; else it is "". found is what the kernel shows now.
func (p *Provider) Unheld(ctx context.Context, name string, found []Holder) string {
	r, err := p.find(ctx, name)
	if err != nil {
		return ""
	}
	p.see(r, found)
	p.mu.Lock()
	v, since := r.v, r.unheldSince
	fresh := r.pending > 0 || time.Since(r.lastUse) < startTime
	p.mu.Unlock()
	n := v.useCount()
	if n == 0 || len(found) > 0 {
		return ""
	}
	uses := "1 use has"
	if n > 1 {
		uses = fmt.Sprintf("%d uses have", n)
	}
	text := fmt.Sprintf("no process that the kernel shows: %s had none since %s, when csi-volmgr saw that first; ", uses,
		since.UTC().Format(time.RFC3339))
	switch {
	case fresh:
		return text + "a container may be about to start"
	case p.engineRuns(v):
		return text + "the engine that began it runs, and ends it; if it has lost the end: csi-volmgr gc --yes --lost-uses"
	}
	return text + "csi-volmgr gc --yes ends them"
}
