package named

import (
	"fmt"
	"maps"
	"slices"
)

// doubted reports whether a volume's removal waits: it was read from a journal that may have lost newer
// records, so that the removal may have ended, and a new volume of that name and claim may have been made.
func doubted(v Volume, lost bool) bool { return v.Removing && lost }

// reasonDoubted says what a doubted removal waits for.
func reasonDoubted(name string) string {
	return fmt.Sprintf("its removal waits for csi-volmgr journal accept --reason=TEXT, or for another csi-volmgr volume "+
		"remove %s, since it was asked for before the daemon started and the journal may have lost newer records: what it "+
		"would delete may be newer", name)
}

func (p *Provider) isDoubted(r *row) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.doubted
}

// LossAccepted resumes the removals that waited for the word that lost records are accepted.
func (p *Provider) LossAccepted() { p.signal() }

// accepted returns the rows whose removal no longer waits, and ends their wait.
func (p *Provider) accepted() (resumed []*row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.rows)) {
		if r := p.rows[name]; r.doubted && !p.c.Lost() {
			r.doubted = false
			resumed = append(resumed, r)
		}
	}
	return resumed
}
