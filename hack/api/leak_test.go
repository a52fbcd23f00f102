package main

import (
	"slices"
	"strings"
	"testing"
)

// withAny are the names that have an empty interface, and why it hides no type.
func withAny() map[string]string {
	return map[string]string{
		"pkg/client.(*Client).Do": "its values are the caller's own, written and read as JSON",
	}
}

// Other modules cannot name a type of internal, so they could not write down what they
// give to, or get from, a name that shows one.
func TestTheFrontDoorShowsNothingHidden(t *testing.T) {
	reasons := withAny()
	for _, l := range leaks(loaded(t)) {
		if l.what != "any" {
			t.Errorf("%s shows %s, which others cannot import: declare a type, or a small interface, below pkg", l.at, l.what)
			continue
		}
		if reasons[l.at] == "" {
			t.Errorf("%s has an empty interface, behind which any type hides: say which, or give a reason in withAny", l.at)
		}
		delete(reasons, l.at)
	}
	for at := range reasons {
		t.Errorf("withAny has %s, which has no empty interface", at)
	}
}

// Each way to show a type of internal is found where it is.
func TestEveryLeakIsFound(t *testing.T) {
	for _, tc := range []struct{ body, at, what string }{
		{"func F(inside.T) {}", "F", "T"},
		{"func F() inside.T { panic(0) }", "F", "T"},
		{"func F(...inside.T) {}", "F", "T"},
		{"func F(*inside.T) {}", "F", "T"},
		{"func F([]inside.T) {}", "F", "T"},
		{"func F([2]inside.T) {}", "F", "T"},
		{"func F(map[inside.T]int) {}", "F", "T"},
		{"func F(map[int]inside.T) {}", "F", "T"},
		{"func F(<-chan inside.T) {}", "F", "T"},
		{"func F(func(func(inside.T))) {}", "F", "T"},
		{"func F(func() inside.T) {}", "F", "T"},
		{"func F(interface{ M(inside.T) }) {}", "F", "T"},
		{"func F(interface{ inside.I }) {}", "F", "I"},
		{"func F(struct{ F inside.T }) {}", "F", "T"},
		{"func F(struct{ inside.T }) {}", "F", "T"},
		{"func F(foreign.Box[inside.T]) {}", "F", "T"},
		{"func F(foreign.Set[inside.T]) {}", "F", "T"},
		{"func F(foreign.Tag[inside.T]) {}", "F", "T"},
		{"func F(inside.A) {}", "F", "A"},
		{"func F[P inside.I](P) {}", "F", "I"},
		{"func F[P ~[]inside.T](P) {}", "F", "T"},
		{"func F[P string | inside.T](P) {}", "F", "T"},
		{"func F[P inside.Num](P) {}", "F", "Num"},
		{"func F(within.T) {}", "F", "/pkg/internal/within.T"},
		{"var V inside.T", "V", "T"},
		{"var V = inside.C", "V", "T2"},
		{"const C = inside.C", "C", "T2"},
		{"type X inside.T", "X", "T"},
		{"type X []inside.T", "X", "T"},
		{"type X func(inside.T)", "X", "T"},
		{"type X = inside.T", "X", "T"},
		{"type X = []inside.T", "X", "T"},
		{"type x = inside.T; func F(x) {}", "F", "T"},
		{"type X[P any] = map[string]inside.T", "X", "T"},
		{"type X[P inside.I] struct{}", "X", "I"},
		{"type X[P inside.I] = []P", "X", "I"},
		{"type X[P any] struct{ f P }; var V X[inside.T]", "V", "T"},
		{"type X struct{ F inside.T }", "X.F", "T"},
		{"type X struct{ F, G *inside.T }", "X.G", "T"},
		{"type X struct{ inside.T }", "X.T", "T"},
		{"type x = inside.T; type X struct{ x }", "X.x", "T"},
		{"type x = inside.T; type X struct{ x }", "X.Shown", "T"},
		{"type X struct{ F struct{ G inside.T } }", "X.F", "T"},
		{"type X struct{}; func (X) M(inside.T) {}", "X.M", "T"},
		{"type X struct{}; func (*X) M() inside.T { panic(0) }", "(*X).M", "T"},
		{"type X struct{ y }; type y struct{}; func (y) M(inside.T) {}", "X.M", "T"},
		{"type X struct{ *y }; type y struct{}; func (*y) M(inside.T) {}", "X.M", "T"},
		{"type X struct{ y }; type y interface{ M(inside.T) }", "X.M", "T"},
		{"type X struct{ y }; type y struct{ F inside.T }", "y.F", "T"},
		{"type X struct{ y }; type y struct{ z }; type z struct{ F inside.T }", "z.F", "T"},
		{"type X interface{ M(inside.T) }", "X.M", "T"},
		{"type X interface{ inside.I }", "X.internal/inside.I", "I"},
		{"type X interface{ y }; type y interface{ M(inside.T) }", "X.M", "T"},
		{"type X interface{ string | inside.T2 }", "X.string | internal/inside.T2", "T2"},
		{"type x struct{ F inside.T }; func F() *x { return nil }", "x.F", "T"},
		{"type x struct{}; func (*x) M(inside.T) {}; func F() *x { return nil }", "(*x).M", "T"},
		{"type x struct{}; func (*x) M(inside.T) {}; var V = map[string][]*x{}", "(*x).M", "T"},
		{"type x struct{}; func (x) M(inside.T) {}; type X = x", "x.M", "T"},
		{"type x struct{}; func (x) M(inside.T) {}; type X struct{ F x }", "x.M", "T"},
		{"type x interface{ M(inside.T) }; func F(x) {}", "x.M", "T"},
		{"type x func(inside.T); func F(x) {}", "x", "T"},
		{"type x []y; type y struct{}; func (y) M(inside.T) {}; func F(x) {}", "y.M", "T"},
		{"type y struct{ F int }; type y2[P any] y; type X y2[inside.T]", "X", "T"},
		{"type y inside.T; type X y", "y", "T"},
		{"type x[P inside.I] []P; type y struct{}; func (y) M() {}; func F() x[inside.I] { return nil }", "x", "I"},
		{"type x struct{ F *y }; type y struct{ F inside.T }; func F() x { panic(0) }", "y.F", "T"},
		{"type x struct{}; func (x) M(inside.T) {}; type X struct{ x }; func F() x { panic(0) }", "x.M", "T"},
		{"func F(any) {}", "F", "any"},
		{"func F(interface{}) {}", "F", "any"},
		{"func F(...any) {}", "F", "any"},
		{"func F() map[string]any { return nil }", "F", "any"},
		{"func F[P []any](P) {}", "F", "any"},
		{"func F(foreign.Value) {}", "F", "any"},
		{"func F(foreign.Box[any]) {}", "F", "any"},
		{"type X any", "X", "any"},
		{"type X interface{}", "X", "any"},
		{"type X = any", "X", "any"},
		{"type x any; func F(x) {}", "x", "any"},
		{"type X struct{ F any }", "X.F", "any"},
		{"type X struct{ F func(any) }", "X.F", "any"},
		{"type X struct{}; func (X) M(any) {}", "X.M", "any"},
		{"type X interface{ M(any) }", "X.M", "any"},
		{"type x interface{ M() any }; type X struct{ x }", "X.M", "any"},
	} {
		want := leak{at: "pkg/planted." + tc.at, what: tc.what}
		switch {
		case strings.HasPrefix(tc.what, "/"):
			want.what = tc.what[1:]
		case tc.what != "any":
			want.what = "internal/inside." + tc.what
		}
		if got := leaks(planted(t, tc.body)); !slices.Contains(got, want) {
			t.Errorf("%s: found %v, want %v", tc.body, got, want)
		}
	}
}

func TestWhatHidesNothingIsNotFound(t *testing.T) {
	for _, body := range []string{
		"type X struct{ f inside.T; g any; y }; type y struct{ f inside.T }",
		"type X struct{ F struct{ f inside.T; g any } }",
		"type X struct{ f *y }; type y struct{ F inside.T }",
		"type X y; type y struct{ F int }; func (y) M(inside.T) {}",
		"type x struct{ F inside.T }; func f() x { panic(0) }",
		"type X struct{}; func (X) m(inside.T, any) {}",
		"func F() { var _ inside.T; var _ any }",
		"type X interface{ m(inside.T) any; M() }",
		"type X interface{ M(); y }; type y interface{ m(inside.T); M() }",
		"func F[P any, Q comparable, R interface{}](P, Q, R) {}",
		"type X[P any] struct{ F P }; func (X[P]) M(P) P { panic(0) }; var V X[error]",
		"const C = int(inside.C)",
		"type X struct{ foreign.Values }; type Y interface{ foreign.Values }",
		"type X = foreign.Lister; func F(foreign.Box[X], foreign.Set[string]) error { return nil }",
		"type X int; func (X) String() string { return `` }; var V = map[X]func(...X) <-chan *X{}",
		"type X struct{ Next *X }; type Y interface{ M(Y) X }; func F(Y) X { panic(0) }",
	} {
		if got := leaks(planted(t, body)); got != nil {
			t.Errorf("%s: found %v", body, got)
		}
	}
}
