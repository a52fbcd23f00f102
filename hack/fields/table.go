package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed fields.txt
var table string

// The possible decisions.
const (
	done    = "done"    // csi-volmgr does what the field asks for
	refused = "refused" // an object with the field is refused, with an error that names it
	none    = "none"    // the field has no meaning for a volume on a node
)

// The ways to prove a decision.
const (
	bySet     = "set"     // the field with the value changes what is resolved
	byProblem = "problem" // the field with the value is a problem that names it
	byTest    = "test"    // a test of another package shows it
)

// decision says what happens with one field or, unless it is done, with all fields below it.
type decision struct {
	kind, name string // of the object
	path       string // "spec.volumes[].emptyDir.mode"
	decision   string
	by         string // "" for none
	value      string // of bySet and byProblem, as YAML
	pkg, test  string // of byTest
	why        string
	line       int
	base       base
}

// key names the field.
func (d decision) key() string { return d.kind + " " + d.path }

// base is the object's value at a path before a field below it is changed, as YAML;
// the zero base is the value in testdata/world.yaml.
type base struct{ path, value string }

// parse reads the table: sections, which begin with the object and the common path of their
// fields, a base for their proofs, and a line for each field.
//
//	== Pod spec.volumes[].emptyDir
//	base {sizeLimit: 1Gi}
//	.mode | done | test internal/kinds/emptydir TestX | why
//
// A kind may have the name of the object that proofs change: PersistentVolume/pv-1.
func parse(text string) ([]decision, error) {
	var all []decision
	var kind, name, prefix string
	var from base
	for i, line := range strings.Split(text, "\n") {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("fields.txt:%d: %s", i+1, fmt.Sprintf(format, args...))
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "== "):
			object, path, _ := strings.Cut(strings.TrimPrefix(line, "== "), " ")
			kind, name, _ = strings.Cut(object, "/")
			prefix, from = path, base{}
			continue
		case strings.HasPrefix(line, "base "):
			from = base{prefix, strings.TrimPrefix(line, "base ")}
			continue
		}
		cells := strings.Split(line, " | ")
		for len(cells) < 4 {
			cells = append(cells, "")
		}
		d := decision{
			kind: kind, name: name, path: strings.TrimPrefix(prefix+strings.TrimSpace(cells[0]), "."),
			decision: strings.TrimSpace(cells[1]), why: strings.TrimSpace(cells[3]), line: i + 1, base: from,
		}
		proof := strings.TrimSpace(cells[2])
		if d.decision == none {
			d.why = proof
			if len(cells) > 4 || cells[3] != "" || proof == "" {
				return nil, bad("%s: want FIELD | none | WHY", d.path)
			}
			all = append(all, d)
			continue
		}
		d.by, d.value, _ = strings.Cut(proof, " ")
		if d.by == byTest {
			d.pkg, d.test, _ = strings.Cut(d.value, " ")
		}
		switch {
		case kind == "":
			return nil, bad("a field before the first section")
		case d.decision != done && d.decision != refused:
			return nil, bad("%s: found %q, want done, refused or none", d.path, d.decision)
		case d.by != bySet && d.by != byProblem && d.by != byTest || d.value == "":
			return nil, bad("%s: found proof %q, want set VALUE, problem VALUE or test PACKAGE TEST", d.path, proof)
		case d.by == byTest && d.test == "", len(cells) > 4:
			return nil, bad("%s: want FIELD | DECISION | PROOF | WHY", d.path)
		case d.decision == refused && d.why == "":
			return nil, bad("%s: refused without a reason", d.path)
		}
		all = append(all, d)
	}
	return all, nil
}
