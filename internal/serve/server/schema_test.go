package server

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// schema is a JSON Schema, as far as the API's types need it.
type schema map[string]any

// schemas builds schemas from Go types as encoding/json writes them, with the comments of the types' fields as
// descriptions.
type schemas struct {
	t *testing.T
	// named has the schemas of structs, by name.
	named map[string]schema
	types map[string]reflect.Type
	// comments has the comments of types and fields: "package/Type" and "package/Type.Field".
	comments map[string]string
	read     map[string]bool // the packages whose comments were read
}

func newSchemas(t *testing.T) *schemas {
	return &schemas{t: t, named: map[string]schema{}, types: map[string]reflect.Type{}, comments: map[string]string{}, read: map[string]bool{}}
}

// schemaNames has the types whose name in the document differs.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[VolumeMount](): "StateMount",
	reflect.TypeFor[RetryStatus](): "Retry",
}

// name returns a struct's name in the document: PodStatus, ListOfPodStatus, and HoldersContainer if another Container
// came first.
func (s *schemas) name(t reflect.Type) string {
	if name := schemaNames[t]; name != "" {
		return name
	}
	outer, inner, generic := strings.Cut(t.Name(), "[")
	if generic {
		outer += "Of" + strings.TrimSuffix(inner[strings.LastIndex(inner, ".")+1:], "]")
	}
	if pkg := filepath.Base(t.PkgPath()); s.types[outer] != nil && s.types[outer] != t {
		outer = strings.ToUpper(pkg[:1]) + pkg[1:] + outer
	}
	s.types[outer] = t
	return outer
}

// of returns the schema of t.
func (s *schemas) of(t reflect.Type) schema {
	text := reflect.TypeFor[encoding.TextMarshaler]()
	switch {
	case t == reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return schema{}
	case t.Implements(text) || reflect.PointerTo(t).Implements(text):
		return schema{"type": "string"}
	case t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		s.t.Fatalf("%v encodes itself: say here as what", t)
	}
	switch t.Kind() {
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return schema{"type": "integer"}
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Slice:
		return schema{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		name := s.name(t)
		if _, there := s.named[name]; !there {
			s.named[name] = schema{} // a placeholder, for recursive types
			s.named[name] = s.ofStruct(t)
		}
		return schema{"$ref": "#/components/schemas/" + name}
	}
	s.t.Fatalf("%v: there is no JSON of kind %v here", t, t.Kind())
	return nil
}

func (s *schemas) ofStruct(t reflect.Type) schema {
	properties, required := map[string]any{}, []string{}
	s.fields(t, properties, &required)
	slices.Sort(required)
	out := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	if c := s.comment(t, ""); c != "" {
		out["description"] = c
	}
	return out
}

func (s *schemas) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
			continue
		case name == "":
			s.t.Fatalf("%v.%s has no name in JSON", t, f.Name)
		}
		p := s.of(f.Type)
		if c := s.comment(t, "."+f.Name); c != "" {
			p["description"] = c // next to $ref, too, which OpenAPI 3.1 allows
		}
		properties[name] = p
		if options == "" {
			*required = append(*required, name)
		}
	}
}

// comment returns the comment of a type or of one of its fields.
func (s *schemas) comment(t reflect.Type, field string) string {
	pkg, ours := strings.CutPrefix(t.PkgPath(), "github.com/csi-volmgr/csi-volmgr/")
	if !ours {
		return ""
	}
	if !s.read[pkg] {
		s.read[pkg] = true
		s.readComments(pkg)
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	text := s.comments[pkg+"/"+name+field]
	return strings.NewReplacer("[", "", "]", "").Replace(strings.Join(strings.Fields(text), " "))
}

func (s *schemas) readComments(pkg string) {
	files, err := filepath.Glob(filepath.Join("../../..", pkg, "*.go"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.typeComments(pkg, g)
			}
		}
	}
}

func (s *schemas) typeComments(pkg string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		doc := ts.Doc
		if doc == nil {
			doc = d.Doc
		}
		s.comments[pkg+"/"+ts.Name.Name] = doc.Text()
		s.fieldComments(pkg+"/"+ts.Name.Name, ts.Type)
	}
}

func (s *schemas) fieldComments(of string, t ast.Expr) {
	st, ok := t.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range st.Fields.List {
		for _, name := range f.Names {
			s.comments[of+"."+name.Name] = f.Doc.Text() + f.Comment.Text()
		}
	}
}

// problems returns how a JSON value violates its schema.
func (s *schemas) problems(at string, is schema, v any) []string {
	if ref, ok := is["$ref"].(string); ok {
		is = s.named[ref[strings.LastIndex(ref, "/")+1:]]
	}
	var found []string
	switch v := v.(type) {
	case map[string]any:
		properties, _ := is["properties"].(map[string]any)
		rest, _ := is["additionalProperties"].(schema)
		for key, value := range v {
			switch p, ok := properties[key].(schema); {
			case ok:
				found = append(found, s.problems(at+"."+key, p, value)...)
			case rest != nil:
				found = append(found, s.problems(at+"[]", rest, value)...)
			case is["type"] != nil:
				found = append(found, at+"."+key+" is not documented")
			}
		}
		required, _ := is["required"].([]string)
		for _, key := range required {
			if _, there := v[key]; !there {
				found = append(found, at+"."+key+" is documented as always there, and is not")
			}
		}
	case []any:
		items, _ := is["items"].(schema)
		for _, item := range v {
			found = append(found, s.problems(at+"[]", items, item)...)
		}
	}
	if want := is["type"]; want != nil && want != kindOfJSON(v) {
		found = append(found, fmt.Sprintf("%s is %s, documented as %v", at, kindOfJSON(v), want))
	}
	return found
}

func kindOfJSON(v any) string {
	switch v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		return "integer"
	default:
		return "null"
	}
}

// fill sets every field of what v points to to a non-zero value, so that its JSON omits none.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(now))
			return
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(t, f)
			}
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":"b"}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("web")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	default:
		t.Fatalf("no value for a %v", v.Type())
	}
}

// filled returns a T with every field set.
func filled[T any](t *testing.T) T {
	t.Helper()
	var v T
	fill(t, reflect.ValueOf(&v).Elem())
	return v
}
