package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the tree.
const root = "../.."

// The limits of the front door: a reader has to learn what it has, and a release has to keep it.
const (
	// maxNames is for all packages below pkg together.
	maxNames = 500
	// maxFields goes down, never up. It is the number when the front door was complete.
	maxFields = 591
)

func loaded(t *testing.T) []name {
	t.Helper()
	d, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	return d.names()
}

func TestTheListIsOfTheTree(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(document)))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes(string(b), page(loaded(t))) {
		t.Errorf("%s: %s: run make api, and tell CHANGELOG.md of what went", document, change)
	}
}

// changes lists the lines of the first page that the second lacks, and of the second that
// the first lacks.
func changes(was, is string) (all []string) {
	old, now := strings.Split(was, "\n"), strings.Split(is, "\n")
	for _, line := range old {
		if !slices.Contains(now, line) {
			all = append(all, "went: "+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			all = append(all, "came: "+line)
		}
	}
	if len(all) == 0 && was != is {
		all = []string{"the order of its lines, or how often it has one"}
	}
	return all
}

func TestChangesOfTheListAreFound(t *testing.T) {
	for _, tc := range []struct {
		was, is string
		want    []string
	}{
		{"a\nb", "a\nb", nil},
		{"a\nb\nc", "a\nd\nc", []string{"went: b", "came: d"}},
		{"a\nb", "b\na", []string{"the order of its lines, or how often it has one"}},
	} {
		if got := changes(tc.was, tc.is); !slices.Equal(got, tc.want) {
			t.Errorf("%q, %q: %q, want %q", tc.was, tc.is, got, tc.want)
		}
	}
}

// Every exported name has one line, and a name of an unexported type has one if a caller
// can use it.
func TestTheListHasEveryNameOnce(t *testing.T) {
	got := page(planted(t, `
const (
	C    T = 1
	D      = "x"
	quiet  = 2
)
var V, quietly = map[string][3]chan<- *T{}, 0
var W = foreign.New()
type (
	T     int
	S     struct { base; *Base; foreign.Lister; A, B foreign.Box[T]; c int; Inner struct{ A, b int; error } }
	base  struct { Promoted, hidden string }
	Base  struct { Declared func(name string, more ...int) (n int, err error) }
	I     interface { M(); J; j }
	J     interface { N(int) }
	j     interface { O() }
	Seal  interface { M(); m() }
	Num   interface { ~int | ~string }
	Al    = foreign.Lister
	G[K comparable, P *T | []K] struct { F P }
	F     func(J) <-chan interface{ M(int); error }
	got   struct { Field int }
	gone  struct { Field int }
)
func (T) Value() {}
func (*T) Pointer(a, b T) {}
func (T) quiet() {}
func (base) OfBase() {}
func (*Base) OfPointer() {}
func (G[K, P]) Of(K) P { panic(0) }
func (got) Method() {}
func (gone) Method() {}
func Fun[P any, Q interface{ I; comparable }](p P, q ...Q) got { panic(0) }
func quieter() gone { panic(0) }
`))
	want := `# The exported names of the packages below pkg, by make api.
# names: 28 (functions, types, methods, constants, variables)
# fields: 9
pkg/planted const C T
pkg/planted const D untyped string
pkg/planted field Base.Declared func(string, ...int) (int, error)
pkg/planted field G.F P
pkg/planted field S.A example.org/foreign.Box[T]
pkg/planted field S.B example.org/foreign.Box[T]
pkg/planted field S.Base embedded *Base
pkg/planted field S.Inner struct{A int; b int; error}
pkg/planted field S.Lister embedded example.org/foreign.Lister
pkg/planted field base.Promoted string
pkg/planted field got.Field int
pkg/planted func Fun func[P any, Q interface{I; comparable}](P, ...Q) got
pkg/planted method (*Base).OfPointer func()
pkg/planted method (*T).Pointer func(T, T)
pkg/planted method G.Of func(K) P
pkg/planted method I.M func()
pkg/planted method I.N func(int)
pkg/planted method I.O func()
pkg/planted method J.N func(int)
pkg/planted method S.List func() []string
pkg/planted method S.OfBase func()
pkg/planted method S.OfPointer func()
pkg/planted method Seal.M func()
pkg/planted method T.Value func()
pkg/planted method got.Method func()
pkg/planted type Al = example.org/foreign.Lister
pkg/planted type Base struct
pkg/planted type F func(J) <-chan interface{M(int); error}
pkg/planted type G [K comparable, P *T | []K] struct
pkg/planted type I interface
pkg/planted type J interface
pkg/planted type Num interface{~int | ~string}
pkg/planted type S struct
pkg/planted type Seal interface with unexported methods
pkg/planted type T int
pkg/planted var V map[string][3]chan<- *T
pkg/planted var W example.org/foreign.own
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestTheFrontDoorIsSmall(t *testing.T) {
	names, fields := count(loaded(t))
	if names > maxNames || fields > maxFields {
		t.Errorf("pkg has %d names and %d fields, %d and %d at the most: what need others import? The rest goes below internal", names, fields, maxNames, maxFields)
	}
	if names < 200 {
		t.Errorf("pkg has %d names: it has more", names)
	}
}
