package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}],"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}`

// The fast reader takes JSON as programs write it, and leaves wrong or doubtful JSON to the YAML reader, which
// explains what is wrong.
func TestJSONIsReadQuicklyWhereNothingIsWrong(t *testing.T) {
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n"},"data":{"k":"dg=="},"stringData":{"t":"a\nb"}}`
	fields := func(n int) string { // in one object
		text := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"0":"{\"a\":[{,}"`
		for i := 1; i < n; i++ {
			text += fmt.Sprintf(`,"%d":"0"`, i)
		}
		return text + "}}"
	}
	if _, ok := decodeJSON([]byte(fields(maxKeys + 1))); ok {
		t.Errorf("%d fields are compared with each other", maxKeys+1)
	}
	for _, text := range []string{podJSON, fields(maxKeys), podJSON + "\n", "---\n" + podJSON + "\n---\n" + secret + "\n", "{\n" + secret[1:], ""} {
		if _, ok := decodeJSON([]byte(text)); !ok {
			t.Errorf("not read: %s", text)
		}
		agree(t, []byte(text))
	}
	pod := func(more string) string {
		return `{"apiVersion":"v1","kind":"Pod",` + more + podJSON[len(`{"apiVersion":"v1","kind":"Pod",`):]
	}
	for _, text := range []string{
		pod(`"status":{"message":"a","reason":"b","message":"c"},`), pod(`"status":{"conditions":[{"type":"a"},{"type":"b","type":"c"}]},`),
		pod(`"status":{"phase":"a"]},`), pod(`"status":{"message":"a` + "\n" + `b"},`), `{"apiVersion":["v1"],"kind":"Pod"}`, `{"metadata":{"apiVersion":"v1","kind":"Pod"}}`,
		`{"apiVersion":"v1" "kind":"Pod"}`, `{"apiVersion","v1","kind":"Pod"}`, `{"`, `{"a\`, `{"a":]`, `{]`, `{"a":{}`,
		pod(`"Spec":{},`), pod(`"unknown":1,`), pod(`"kind":"Pod",`), pod(`"metadata":{"name":"b"},`), pod("\t"),
		pod(`"status":{"message":"\/"},`), pod(`"status":{"message":"\u00e4"},`), pod(`"status":{"message":"ä"},`),
		podJSON + podJSON, podJSON + "\n" + podJSON, podJSON + "\n---\n" + podJSON, podJSON + "\n...\n", podJSON + " # a pod",
		`{"kind":"Pod","metadata":{"name":"a"}}`, `{"apiVersion":"v1","kind":"List","items":[]}`,
		`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"a","namespace":"n"}}`,
		"kind: Pod", "[]", podJSON[:len(podJSON)-1],
	} {
		if _, ok := decodeJSON([]byte(text)); ok {
			t.Errorf("read quickly: %s", text)
		}
	}
}

// agree fails if the fast reader takes data that the YAML reader refuses or reads differently.
func agree(t *testing.T, data []byte) {
	t.Helper()
	quick, ok := decodeJSON(data)
	if !ok {
		return
	}
	slow, _, err := decode(never, "f", data, maxWork)
	if err != nil && strings.Contains(err.Error(), "not YAML:") {
		return // a line break that is one in JSON only
	} else if err != nil {
		t.Errorf("read quickly, and refused: %v\n%s", err, data)
	} else if diff := cmp.Diff(slow, quick, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("read slowly (-) and quickly (+):\n%s\n%s", diff, data)
	}
}

// FuzzJSONIsReadAsYAMLIs: the fast reader never takes data that the YAML reader refuses or reads differently.
func FuzzJSONIsReadAsYAMLIs(f *testing.F) {
	f.Add(podJSON)
	f.Add("---\n" + podJSON + "\n---\n{}\n")
	f.Add(`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":1}}}}`)
	f.Add(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","creationTimestamp":null},"data":{"a":null,"<<":"x"},"binaryData":{"b":"AA=="},"immutable":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			return // names that are too long for YAML do not matter here
		}
		agree(t, []byte(text))
	})
}

// The YAML reader decodes these kinds of values only. If a later version of the API had another one, the YAML reader
// would refuse it and the fast reader would take it.
func TestBothReadersKnowTheSameKindsOfValues(t *testing.T) {
	own := reflect.TypeFor[json.Unmarshaler]()
	seen := map[reflect.Type]bool{}
	var check func(at string, typ reflect.Type)
	check = func(at string, typ reflect.Type) {
		if seen[typ] || reflect.PointerTo(typ).Implements(own) {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Struct:
			for _, f := range reflect.VisibleFields(typ) {
				if f.IsExported() && f.Tag.Get("json") != "-" {
					check(at+"."+f.Name, f.Type)
				}
			}
		case reflect.Pointer, reflect.Slice, reflect.Map:
			if typ.Elem().Kind() != reflect.Uint8 {
				check(at, typ.Elem())
			}
		case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		default:
			t.Errorf("%s is a %s", at, typ)
		}
	}
	for _, k := range kinds {
		check(k.name, reflect.TypeOf(k.make()).Elem())
	}
}

// BenchmarkDecode decodes a pod as a program applies it (json), and by the YAML reader (yaml).
func BenchmarkDecode(b *testing.B) {
	for name, text := range map[string]string{"json": podJSON, "yaml": podJSON + " #"} {
		b.Run("as="+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Decode("f", []byte(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// When a node restarts, it reads the stored objects by the fast reader.
func TestEveryKindThatIsKeptIsReloadedQuickly(t *testing.T) {
	for _, k := range kinds {
		obj := k.make()
		obj.SetName("a")
		b, err := Encode(obj)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := kindEncoded(b); !ok || got.name != k.name {
			t.Errorf("%s: %q, from %s", k.name, got.name, b)
		}
	}
	for _, text := range []string{``, `{"kind":"Pod"}`, `{"kind":"Pod","apiVersion":"v10"}`, ` {"kind":"Pod","apiVersion":"v1"}`} {
		if got, ok := kindEncoded([]byte(text)); ok {
			t.Errorf("%s: %q", text, got.name)
		}
	}
}
