package client

import (
	"encoding"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// pair has a type of this package and the server's type with the same JSON.
type pair struct{ ours, theirs reflect.Type }

func same[Ours, Theirs any]() pair { return pair{reflect.TypeFor[Ours](), reflect.TypeFor[Theirs]()} }

// pairs returns the bodies of requests and answers. Fields lead to the other types.
func pairs() []pair {
	return []pair{
		same[Version, server.Version](), same[itemsOf[Applied], server.List[server.Applied]](),
		same[PodStatus, server.PodStatus](), same[VolumeStatus, server.VolumeStatus](),
		same[ClaimStatus, server.ClaimStatus](), same[DriverStatus, server.DriverStatus](),
		same[Problem, server.Problem](), same[Explanation, server.Explanation](),
		same[RuntimeFeatures, server.Container](), same[ContainerMount, server.ContainerMount](),
		same[PodEvent, server.Event[server.PodStatus]](), same[waitLine, server.Progress](),
		same[NamedRequest, server.NamedRequest](), same[NamedVolume, server.NamedVolume](),
		same[mountpoint, server.NamedMount](), same[removal, server.Removed](), same[Error, server.Error](),
	}
}

// A field that the server does not send stays empty without an error, and one of another
// kind is an error only when it arrives.
func TestEveryFieldIsTheServers(t *testing.T) {
	d := drift{seen: map[pair]bool{}}
	for _, p := range pairs() {
		d.compare(p.ours.Name(), p)
	}
	for _, found := range d.found {
		t.Error(found)
	}
	compared := map[string]bool{}
	for p := range d.seen {
		name, _, _ := strings.Cut(p.ours.Name(), "[")
		compared[name] = true
	}
	for _, name := range structsOf(t) {
		if !compared[name] {
			t.Errorf("%s: no row of pairs leads to it, so it is compared with no type of the server", name)
		}
	}
}

// Each planted type drifts from the server's in one way.
func TestDriftIsFound(t *testing.T) {
	type renamed struct {
		Node string `json:"nodeName"`
	}
	type number struct {
		Node int `json:"node"`
	}
	type untagged struct{ Node string }
	type below struct {
		Volumes []struct {
			ID []string `json:"id"`
		} `json:"volumes"`
	}
	for _, tt := range []struct {
		pair
		want string
	}{
		{same[renamed, server.Version](), "x.nodeName: server.Version has no such field"},
		{same[number, server.Version](), "x.node: a JSON number, the server's string is a string"},
		{same[untagged, server.Version](), "x.Node: no name in JSON"},
		{same[below, server.PodStatus](), "x.volumes[].id: a JSON array, the server's state.VolumeID is a string"},
		{same[Version, server.Version](), ""},
	} {
		d := drift{seen: map[pair]bool{}}
		d.compare("x", tt.pair)
		if got := strings.Join(d.found, "\n"); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.ours, got, tt.want)
		}
	}
}

// drift compares types by their JSON.
type drift struct {
	seen  map[pair]bool // the structs that were compared
	found []string
}

func (d *drift) compare(at string, p pair) {
	p = pair{pointed(p.ours), pointed(p.theirs)}
	ours, theirs := kindOf(p.ours), kindOf(p.theirs)
	switch {
	case ours != theirs:
		d.found = append(d.found, fmt.Sprintf("%s: a JSON %s, the server's %v is a %s", at, ours, p.theirs, theirs))
	case ours == "array":
		d.compare(at+"[]", pair{p.ours.Elem(), p.theirs.Elem()})
	case ours == "map":
		d.compare(at+"{}", pair{p.ours.Elem(), p.theirs.Elem()})
	case ours == "struct" && !d.seen[p]:
		d.seen[p] = true
		d.fields(at, p)
	}
}

func (d *drift) fields(at string, p pair) {
	theirs := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(p.theirs) {
		theirs[jsonName(f)] = f.Type
	}
	for _, f := range reflect.VisibleFields(p.ours) {
		name := jsonName(f)
		switch its, ok := theirs[name]; {
		case f.Anonymous:
			d.seen[pair{f.Type, p.theirs}] = true // VisibleFields has its fields
		case name == "-":
		case name == "":
			d.found = append(d.found, at+"."+f.Name+": no name in JSON")
		case !ok:
			d.found = append(d.found, fmt.Sprintf("%s.%s: %v has no such field", at, name, p.theirs))
		default:
			d.compare(at+"."+name, pair{f.Type, its})
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func kindOf(t reflect.Type) string {
	text := reflect.TypeFor[encoding.TextMarshaler]()
	switch k := t.Kind(); {
	case t.Implements(text) || reflect.PointerTo(t).Implements(text):
		return "string"
	case k >= reflect.Int && k <= reflect.Float64:
		return "number"
	case k == reflect.Slice:
		return "array"
	default:
		return k.String()
	}
}

// structsOf returns the names of the package's structs that have fields in JSON: all but Client.
func structsOf(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok && s.Name.Name != "Client" {
				if _, is := s.Type.(*ast.StructType); is {
					names = append(names, s.Name.Name)
				}
			}
			return true
		})
	}
	if len(names) < 20 {
		t.Fatalf("only %q", names)
	}
	return names
}
