package manifest

import (
	"bytes"
	"fmt"
	"io"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// Limits on what one input may cost, which are checked before anything is
// expanded. The budget of the decoder is checked while it decodes.
const (
	// maxExpanded bounds an input with aliases: the bytes that it has once each
	// alias (*name) is replaced by what it stands for.
	maxExpanded = MaxBytes
	// maxMarks bounds the marks that separate values in YAML. The parser makes a
	// node of some 250 bytes for each value, and nothing can count them earlier. A
	// ConfigMap of 1 MiB, the most that Kubernetes keeps, has fewer marks.
	maxMarks = 1 << 19
	// maxNested bounds how deep values are in one another, through aliases too: the
	// decoder calls itself once a level.
	maxNested = 1000
)

// marks counts what may separate two values in YAML.
func marks(data []byte) int {
	n := 0
	for i, c := range data {
		switch c {
		case ',', '[', '{', '\n':
			n++
		case ':', '-', '?':
			if i+1 < len(data) && (data[i+1] == ' ' || data[i+1] == '\t') {
				n++
			}
		}
	}
	return n
}

// weight is what a value with an anchor is with its aliases expanded: bytes, and
// levels of objects and lists.
type weight struct {
	bytes, depth int
}

// affordable weighs one document, which counts together with those before it, and
// reports what is too much.
func (d *decoder) affordable(n *yaml.Node) bool {
	d.object, d.anchors = "", map[*yaml.Node]weight{}
	_, ok := d.weigh(n)
	return ok
}

// weigh adds what n has with its aliases expanded to d.expanded, without expanding
// them, and returns how deep it is. It visits each node of the input once: an
// alias comes after the end of what it stands for.
func (d *decoder) weigh(n *yaml.Node) (depth int, ok bool) {
	if n.Kind == yaml.AliasNode {
		w, known := d.anchors[n.Alias]
		if d.expanded += w.bytes; !known {
			d.add(n.Line, "", "an alias (*name) inside of what it stands for")
		} else if d.expanded > maxExpanded {
			d.add(n.Line, "", fmt.Sprintf("the aliases (*name) stand for more than %d bytes; "+
				"want at most that many in a file with its aliases written out", maxExpanded))
		}
		return w.depth, known && d.expanded <= maxExpanded
	}
	before := d.expanded
	d.expanded += len(n.Value) + 1
	for _, part := range n.Content {
		below, ok := d.weigh(part)
		if !ok {
			return 0, false
		}
		if depth = max(depth, below+1); depth > maxNested {
			d.add(part.Line, "", fmt.Sprintf("more than %d levels of objects and lists in one another", maxNested))
			return 0, false
		}
	}
	if n.Anchor != "" {
		d.anchors[n] = weight{bytes: d.expanded - before, depth: depth}
	}
	return depth, true
}

// untilEvery is how many bytes are read, and how many values decoded, between two
// looks at whether the caller has gone.
const untilEvery = 4 << 10

// until returns a reader of data that fails once gone says why, which ends the
// parser that reads it.
func until(gone func() error, data []byte) io.Reader {
	return &untilReader{gone: gone, rest: bytes.NewReader(data)}
}

type untilReader struct {
	gone func() error
	rest *bytes.Reader
}

func (u *untilReader) Read(p []byte) (int, error) {
	if err := u.gone(); err != nil {
		return 0, err
	}
	return u.rest.Read(p[:min(len(p), untilEvery)])
}
