package manifest

import (
	"bytes"
	"fmt"
	"io"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// Limits on the cost of one input, checked before any alias is expanded. The decoder checks its own
// budget while it decodes.
const (
	// maxExpanded limits the size in bytes of an input with each alias (*name) replaced by its
	// anchor's value.
	maxExpanded = MaxBytes
	// maxMarks limits the marks that separate values in YAML. The parser creates a node of some 250
	// bytes for each value, and the values cannot be counted before. A ConfigMap of 1 MiB, the most
	// that Kubernetes stores, has fewer marks.
	maxMarks = 1 << 19
	// maxNested limits the nesting of values, including through aliases, because the decoder
	// recurses once per level.
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

// weight is the cost of an anchored value with its aliases expanded: its bytes, and its levels of
// objects and lists.
type weight struct {
	bytes, depth int
}

// affordable weighs one document, adding to the documents before it, and reports whether it is
// within the limits. If not, it adds an error.
func (d *decoder) affordable(n *yaml.Node) bool {
	d.object, d.anchors = "", map[*yaml.Node]weight{}
	_, ok := d.weigh(n)
	return ok
}

// weigh adds the expanded size of n to d.expanded, without expanding aliases, and returns the depth
// of n. It visits each node of the input once, since an alias comes after the end of its anchor's
// value.
func (d *decoder) weigh(n *yaml.Node) (depth int, ok bool) {
	if n.Kind == yaml.AliasNode {
		w, known := d.anchors[n.Alias]
		if d.expanded += w.bytes; !known {
			d.add(n.Line, "", "an alias (*name) inside the value that it refers to")
		} else if d.expanded > maxExpanded {
			d.add(n.Line, "", fmt.Sprintf("the aliases (*name) expand to more than %d bytes; "+
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
			d.add(part.Line, "", fmt.Sprintf("more than %d nested levels of objects and lists", maxNested))
			return 0, false
		}
	}
	if n.Anchor != "" {
		d.anchors[n] = weight{bytes: d.expanded - before, depth: depth}
	}
	return depth, true
}

// untilEvery is how many bytes are read, or values decoded, between two calls of gone.
const untilEvery = 4 << 10

// until returns a reader of data that fails once gone returns an error, which ends the parser.
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
