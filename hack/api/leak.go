package main

import "go/types"

// leak is a name that shows a type which other modules cannot name.
type leak struct {
	at   string // the name, with its package
	what string // the type; any for an empty interface
}

// leaks lists the names that show a type of the module outside its front door, or that
// may hold one behind an empty interface.
func leaks(all []name) (found []leak) {
	seen := map[leak]bool{}
	for _, n := range all {
		report := func(what string) {
			l := leak{at: below(n.pkg) + "." + n.name, what: what}
			if !seen[l] {
				found = append(found, l)
			}
			seen[l] = true
		}
		n.walk(shown{
			name: func(o *types.TypeName) {
				if hidden(o.Pkg()) {
					report(below(o.Pkg()) + "." + o.Name())
				}
			},
			empty: func() {
				if !n.foreign {
					report("any")
				}
			},
		})
	}
	return found
}
