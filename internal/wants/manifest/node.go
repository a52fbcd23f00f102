package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"k8s.io/apimachinery/pkg/runtime/schema"
	yaml "sigs.k8s.io/yaml/goyaml.v3"

	"github.com/csi-volmgr/csi-volmgr/internal/host/clip"
)

// deref follows aliases. weigh has already rejected aliases within their own anchor's value.
func deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// describe returns the type of n without its value.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object with fields"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!str":
		return "a string"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a truth value"
	case "!!null":
		return "nothing"
	case "!!timestamp":
		return "a time"
	case "!!merge":
		return "a merge key (<<)"
	}
	return "something else"
}

// child returns the value of a mapping's field, or nil.
func child(n *yaml.Node, name string) *yaml.Node {
	if n == nil {
		return nil
	}
	n = deref(n)
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return deref(n.Content[i+1])
		}
	}
	return nil
}

// text returns the text of a mapping's field, or "".
func text(n *yaml.Node, name string) string {
	if c := child(n, name); c != nil && c.Kind == yaml.ScalarNode && !null(c) {
		return c.Value
	}
	return ""
}

// lineOf returns the line of the field with that path, or of its nearest existing parent. It does
// not find fields with a dot in their names.
func lineOf(n *yaml.Node, field string) int {
	line := n.Line
	for part := range strings.SplitSeq(field, ".") {
		name, rest, _ := strings.Cut(part, "[")
		if n = child(n, name); n == nil {
			return line
		}
		line = n.Line
		for rest != "" {
			var index string
			index, rest, _ = strings.Cut(rest, "]")
			rest = strings.TrimPrefix(rest, "[")
			i, err := strconv.Atoi(index)
			if err != nil || n.Kind != yaml.SequenceNode || i < 0 || i >= len(n.Content) {
				return line
			}
			n = deref(n.Content[i])
			line = n.Line
		}
	}
	return line
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// cut shortens a name from the input for a message.
func cut(s string) string {
	return clip.Text(s, 64, fmt.Sprintf("... (%d bytes)", len(s)))
}

// suggest asks for the known names that name may stand for; "" if there are none.
func suggest(name string, known []string) string {
	near := Nearest(name, known)
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// maxNear bounds how many names [Nearest] returns.
const maxNear = 3

// Nearest returns the known names that a person may mean by name: the one with the fewest typing errors, relative to
// its length; else those that contain it, or whose words begin with its letters (pvc). It returns none if name is
// known, since that is in the wrong place.
func Nearest(name string, known []string) (near []string) {
	if len(name) >= 64 || slices.Contains(known, name) {
		return nil
	}
	best, distance := "", 1+min(3, len(name)/3)
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return []string{k}
		}
		if n := edits(name, k); n < distance {
			best, distance = k, n
		}
		part := strings.Contains(strings.ToLower(k), strings.ToLower(name))
		if len(name) > 2 && (part || strings.EqualFold(initials(k), name)) {
			near = append(near, k)
		}
	}
	if best != "" {
		return []string{best}
	}
	return near[:min(len(near), maxNear)]
}

// initials returns the first letter of each word: pVC for persistentVolumeClaim.
func initials(name string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsUpper(c) {
			return c
		}
		return -1
	}, strings.ToUpper(name[:min(len(name), 1)])+name[min(len(name), 1):])
}

// edits returns the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func gvk(k kind) schema.GroupVersionKind { return schema.FromAPIVersionAndKind(k.apiVersion, k.name) }

// plainJSON rewrites what JSON allows and YAML does not, if data is one JSON document, and
// otherwise returns data unchanged. That is tabs between tokens, and characters escaped as two
// UTF-16 halves. Lines do not move.
func plainJSON(data []byte) []byte {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(data) {
		return data
	}
	// Strings in valid JSON do not contain tabs.
	data = bytes.ReplaceAll(data, []byte{'\t'}, []byte{' '})
	var out []byte
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			out = append(out, data[i])
			continue
		}
		if hi, ok := unicodeEscape(data[i:]); ok && utf16.IsSurrogate(hi) {
			lo, _ := unicodeEscape(data[i+6:])
			r := utf16.DecodeRune(hi, lo)
			out = append(out, string(r)...)
			i += 5
			if utf16.IsSurrogate(lo) {
				i += 6
			}
			continue
		}
		if data[i+1] != '/' { // YAML 1.1 does not escape a slash
			out = append(out, data[i])
		}
		out = append(out, data[i+1])
		i++
	}
	return slices.Clip(out)
}

// unicodeEscape decodes \uXXXX at the beginning of b.
func unicodeEscape(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
