package named

import (
	"fmt"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
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

// Problems lists the volumes whose rows could not be read, and those that share a name with another source's object,
// sorted.
func (p *Provider) Problems() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var problems []source.Problem
	for _, name := range slices.Sorted(maps.Keys(p.rows)) {
		r := p.rows[name]
		if r.contested != "" {
			problems = append(problems, source.Problem{Provider: Name, Where: "volume " + name, Text: r.contested})
		}
		if r.doubted {
			problems = append(problems, source.Problem{Provider: Name, Where: "volume " + name, Text: reasonDoubted(name)})
		} else if r.unreadable != "" {
			problems = append(problems, source.Problem{
				Provider: Name, Where: "volume " + name, Text: "its row in the journal is not readable: " + r.unreadable +
					"; csi-volmgr removes no volume from this node before it can read the row: stop the daemon and run " +
					"csi-volmgr journal repair, or the version that wrote it",
			})
		}
	}
	return problems
}
