package manifest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	yaml "sigs.k8s.io/yaml/goyaml.v3"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// maxWork limits the cost of one input, in values plus units of 64 bytes of the types that they are
// decoded into. An alias may repeat a large part of the input many times, and two bytes of input
// may become a struct of a kilobyte. The types of the objects limit the depth.
const maxWork = 2 << 20

// decoder decodes one input.
type decoder struct {
	file     string
	document int
	// object names the object being decoded, for messages.
	object string
	budget int
	// gone returns an error when the caller no longer waits; it is called now and then.
	gone   func() error
	values int
	// expanded is the size in bytes of the documents so far with their aliases expanded; anchors
	// holds the weights of the anchors in the current document.
	expanded int
	anchors  map[*yaml.Node]weight

	seen    map[resolve.Key]int
	notes   map[resolve.Key]string
	fields  map[reflect.Type]map[string][]int
	objects []runtime.Object
	// others are objects of kinds that are not read; skips means that they are no errors.
	others []Other
	skips  bool
	errs   Errors
}

func (d *decoder) add(line int, field, problem string) {
	d.errs = append(d.errs, &Error{
		File: d.file, Line: line, Document: d.document, Object: d.object, Field: field,
		Problem: problem,
	})
}

// mismatch reports that n is not what the field needs.
func (d *decoder) mismatch(n *yaml.Node, field, want string) {
	d.add(n.Line, field, "found "+describe(n)+", want "+want)
}

// value decodes n into v, which must be settable.
func (d *decoder) value(n *yaml.Node, v reflect.Value, field string) {
	if d.ended() {
		return
	}
	if d.values++; d.values%untilEvery == 0 && d.gone() != nil {
		d.budget = -1
		return
	}
	if d.budget -= 1 + int(v.Type().Size()/64); d.budget < 0 {
		d.add(n.Line, field, "too many values; split the file")
		return
	}
	n = deref(n)
	if null(n) {
		return
	}
	if _, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		d.viaJSON(n, v, field)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), field)
	case reflect.Struct:
		d.structure(n, v, field)
	case reflect.Map:
		d.mapping(n, v, field)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			d.bytes(n, v, field)
			return
		}
		if n.Kind != yaml.SequenceNode {
			d.mismatch(n, field, "a list")
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		for i, one := range n.Content {
			if d.ended() {
				return
			}
			v.Grow(1)
			v.SetLen(i + 1)
			d.value(one, v.Index(i), fmt.Sprintf("%s[%d]", field, i))
		}
	default:
		d.scalar(n, v, field)
	}
}

// ended reports whether decoding must stop.
func (d *decoder) ended() bool { return d.budget < 0 || len(d.errs) >= maxErrors }

func (d *decoder) structure(n *yaml.Node, v reflect.Value, field string) {
	if n.Kind != yaml.MappingNode {
		d.mismatch(n, field, "an object with fields")
		return
	}
	fields := d.fieldsOf(v.Type())
	d.eachEntry(n, field, func(key, value *yaml.Node) {
		at := join(field, key.Value)
		index, ok := fields[key.Value]
		if !ok {
			names := make([]string, 0, len(fields))
			for name := range fields {
				names = append(names, name)
			}
			slices.Sort(names)
			d.add(key.Line, join(field, cut(key.Value)), "unknown field"+suggest(key.Value, names))
			return
		}
		d.value(value, v.FieldByIndex(index), at)
	})
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, field string) {
	if n.Kind != yaml.MappingNode {
		d.mismatch(n, field, "an object with fields")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.eachEntry(n, field, func(key, value *yaml.Node) {
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(value, e, join(field, key.Value))
		v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), e)
	})
}

// eachEntry calls f for each entry of a mapping. It reports keys that are not plain or that repeat.
func (d *decoder) eachEntry(n *yaml.Node, field string, f func(key, value *yaml.Node)) {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && !d.ended(); i += 2 {
		key := deref(n.Content[i])
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			d.add(key.Line, field, "found "+describe(key)+" as the name of a field, want a plain name")
			continue
		}
		if first, again := seen[key.Value]; again {
			d.add(key.Line, join(field, cut(key.Value)), fmt.Sprintf("already in line %d", first))
			continue
		}
		seen[key.Value] = key.Line
		f(key, n.Content[i+1])
	}
}

// viaJSON decodes into a type that implements json.Unmarshaler, such as a quantity.
func (d *decoder) viaJSON(n *yaml.Node, v reflect.Value, field string) {
	var generic any
	if n.Kind == yaml.ScalarNode && n.Tag != "!!int" && n.Tag != "!!float" && n.Tag != "!!bool" {
		generic = n.Value
	} else if err := n.Decode(&generic); err != nil {
		d.mismatch(n, field, "a value")
		return
	}
	b, err := json.Marshal(generic)
	if err != nil {
		d.mismatch(n, field, "a value")
		return
	}
	if err := v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(b); err != nil {
		if v.Type() == reflect.TypeFor[resource.Quantity]() && size.MatchString(n.Value) {
			d.add(n.Line, field, "found "+strconv.Quote(n.Value)+", want "+suggestSize(n.Value))
			return
		}
		d.mismatch(n, field, wantFor(v.Type()))
	}
}

// size matches a number with a unit of letters. Messages show it, since it cannot be a secret's
// value.
var size = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,6})? ?[A-Za-z]{1,5}$`)

// suggestSize returns the likely meaning of a size with an unknown unit, or else how sizes are
// written.
func suggestSize(s string) string {
	number := strings.TrimRight(s, " ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
	unit := strings.ToUpper(strings.TrimSpace(s[len(number):]))
	power := strings.IndexByte("KMGTPE", unit[0])
	if rest := unit[1:]; power < 0 || rest != "" && rest != "B" && rest != "I" && rest != "IB" {
		return "a quantity such as 256Mi: a number and one of Ki, Mi, Gi, Ti, Pi, Ei (powers of 1024) or k, M, G, T, P, E " +
			"(of 1000)"
	}
	decimal := "kMGTPE"[power : power+1]
	return fmt.Sprintf("%s%si (powers of 1024) or %s%s (of 1000)", number, unit[:1], number, decimal)
}

// wantFor describes the text form of a type that implements json.Unmarshaler.
func wantFor(t reflect.Type) string {
	switch t.Name() {
	case "Quantity":
		return "a quantity such as 256Mi"
	case "Time", "MicroTime":
		return "a time such as 2026-01-02T15:04:05Z"
	case "IntOrString":
		return "a number or a string"
	}
	return "a " + t.Name()
}

func (d *decoder) bytes(n *yaml.Node, v reflect.Value, field string) {
	if n.Kind != yaml.ScalarNode {
		d.mismatch(n, field, "base64 text")
		return
	}
	b, err := base64.StdEncoding.DecodeString(strings.Map(unbroken, n.Value))
	if err != nil {
		d.add(n.Line, field, "not base64; want base64, or the plain text under stringData of a Secret or data of a ConfigMap")
		return
	}
	v.SetBytes(b)
}

// unbroken drops the line breaks of folded base64.
func unbroken(r rune) rune {
	if r == '\n' || r == '\r' {
		return -1
	}
	return r
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, field string) {
	if n.Kind != yaml.ScalarNode {
		d.mismatch(n, field, "a "+v.Kind().String())
		return
	}
	switch v.Kind() {
	case reflect.String:
		if n.Tag != "!!str" && n.Tag != "!!timestamp" {
			d.mismatch(n, field, "a string (put it in quotes)")
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if n.Tag != "!!bool" || err != nil {
			d.mismatch(n, field, "true or false")
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(n.Value, 0, v.Type().Bits())
		if n.Tag != "!!int" || err != nil {
			d.mismatch(n, field, fmt.Sprintf("a whole number of %d bits", v.Type().Bits()))
			return
		}
		v.SetInt(i)
	default:
		d.mismatch(n, field, "nothing: csi-volmgr does not read this field")
	}
}

// fieldsOf maps the JSON names of a struct's fields to their indexes.
func (d *decoder) fieldsOf(t reflect.Type) map[string][]int {
	if f, ok := d.fields[t]; ok {
		return f
	}
	f := map[string][]int{}
	for _, sf := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if sf.IsExported() && name != "" && name != "-" {
			f[name] = sf.Index
		}
	}
	d.fields[t] = f
	return f
}
