package manifest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestWorkIsBounded: an alias may stand for a large value, and two bytes for a struct.
func TestWorkIsBounded(t *testing.T) {
	many := func(one string) string { return strings.Repeat(one+", ", 100) + one }
	for name, text := range map[string]string{
		"aliases": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  volumes:\n" +
			"  - &v {name: a, projected: {sources: [&s {configMap: {items: [&i {key: k, path: p}, " + many("*i") + "]}}, " + many("*s") + "]}}\n" +
			strings.Repeat("  - *v\n", 3),
		"nothing": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [" + strings.Repeat("~,", 5000) + "]}\n",
	} {
		_, _, err := decode(never, "x.yaml", []byte(text), 20000)
		if err == nil || !strings.Contains(err.Error(), "too many values; split the file") || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestAttackAliasesThatStandForMuch: the decoder counts the size of an alias before it expands it, in every field,
// also in fields that keep unknown content such as metadata.managedFields.
//
// Attacks: C47.
func TestAttackAliasesThatStandForMuch(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"
	large := strings.Repeat("x", 1<<19)
	levels := strings.Builder{}
	for i := range 2000 {
		fmt.Fprintf(&levels, "      - &n%d [*n%d]\n", i+1, i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"managed fields": {
			head + "  annotations: {a: &v " + large + "}\n  managedFields: [{fieldsV1: {a: [" + strings.Repeat("*v,", 300) + "]}}]\n",
			"x.yaml:6: document 1: the aliases (*name) expand to more than 4194304 bytes",
		},
		"managed fields of many documents": {
			strings.Repeat(head+"  annotations: {a: &v "+large[:1<<14]+"}\n  managedFields: [{fieldsV1: {a: ["+strings.Repeat("*v,", 60)+"]}}]\n---\n", 5),
			"document 5: the aliases (*name) expand to more than",
		},
		"data": {
			head + "data:\n  a: &v " + large + "\n" + entriesOf(9, "*v"),
			"the aliases (*name) expand to more than",
		},
		"aliases of aliases, each small": {
			head + "  managedFields:\n  - fieldsV1:\n      a: &a [" + strings.Repeat("x,", 1000) + "]\n      b: &b [" + strings.Repeat("*a,", 1000) +
				"]\n      c: [[*b], [*b], [*b], [*b]]\n",
			"the aliases (*name) expand to more than",
		},
		"levels": {
			head + "  managedFields:\n  - fieldsV1:\n      a:\n      - &n0 [x]\n" + levels.String(),
			"more than 1000 nested levels of objects and lists",
		},
		"itself":         {head + "  managedFields: [{fieldsV1: &a {f: *a}}]\n", "x.yaml:5: document 1: an alias (*name) inside the value that it refers to"},
		"values":         {head + "data: {a: [" + strings.Repeat("~,", 1<<19) + "]}\n", "want at most 524288 in a file"},
		"errors by rows": {head + "data:\n" + strings.Repeat("  a: b\n", 100_000), "data.a: already in line 6"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode("x.yaml", []byte(c.text))
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "\n") >= maxErrors {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 160<<20 {
				t.Errorf("took %d MiB for %d bytes", took>>20, len(c.text))
			}
		})
	}
}

func entriesOf(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  k%d: %s\n", i, value)
	}
	return b.String()
}

// TestAliasesThatStandForLittle: the aliases that people write still work.
func TestAliasesThatStandForLittle(t *testing.T) {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, managedFields: [{fieldsV1: {a: &f {b: {}}, c: *f}}]}\ndata:\n  k: &v " +
		strings.Repeat("x", 1000) + "\n" + entriesOf(1000, "*v")
	objects, err := Decode("x.yaml", []byte(text))
	if err != nil || len(objects) != 1 || len(objects[0].(*corev1.ConfigMap).Data) != 1001 {
		t.Errorf("got %d objects, %v", len(objects), err)
	}
}

// TestDecodingEndsWithItsCaller: the parser and the decoder stop when their caller has gone.
func TestDecodingEndsWithItsCaller(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n"
	gone := errors.New("the client has gone")
	for name, at := range map[string]int{"before": 0, "while it is parsed": 10, "while values are decoded": 1000} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			over := func() error {
				if looks++; looks > at {
					return gone
				}
				return nil
			}
			if _, _, err := decode(over, "x.yaml", []byte(head+entriesOf(200_000, "x")), maxWork); !errors.Is(err, gone) {
				t.Errorf("got %v", err)
			}
			if looks > at+8 {
				t.Errorf("looked %d times, want to end with look %d", looks, at)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, _, err := DecodeContext(ctx, "x.yaml", []byte(head+entriesOf(1, "x"))); !errors.Is(err, gone) {
		t.Errorf("a context that has ended: got %v", err)
	}
}
