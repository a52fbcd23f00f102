package journal

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const journalPage = "../../docs/reference/journal.md"

// typeNames are the page's names for the types of a record's fields.
var typeNames = map[reflect.Type]string{
	reflect.TypeFor[state.Volume](): "record", reflect.TypeFor[state.Fact](): "fact", reflect.TypeFor[state.Retry](): "retry",
	reflect.TypeFor[state.Phase](): "phase", reflect.TypeFor[state.Pod](): "pod", reflect.TypeFor[state.Spec](): "spec", reflect.TypeFor[state.Needs](): "needs",
	reflect.TypeFor[state.Mount](): "mount", reflect.TypeFor[state.Seen](): "seen", reflect.TypeFor[state.Renewal](): "renewal",
	reflect.TypeFor[state.TokenRequest](): "token", reflect.TypeFor[state.SecretRef](): "secret",
	reflect.TypeFor[time.Time](): "time", reflect.TypeFor[time.Duration](): "nanoseconds", reflect.TypeFor[json.RawMessage](): "JSON",
}

func typeName(t *testing.T, of reflect.Type) string {
	if name := typeNames[of]; name != "" {
		return name
	}
	switch of.Kind() {
	case reflect.Pointer:
		return typeName(t, of.Elem())
	case reflect.Slice:
		return "list of " + typeName(t, of.Elem())
	case reflect.Map:
		return "map to " + typeName(t, of.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "number"
	}
	t.Fatalf("a record has a field of type %s, which the page has no name for", of)
	return ""
}

// fieldsOf adds to rows the fields of a struct and of the structs in it, as the page lists
// them: the struct, the field, its type.
func fieldsOf(t *testing.T, of reflect.Type, name string, rows map[string]bool) {
	for i := range of.NumField() {
		f := of.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map || inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case f.Anonymous:
			fieldsOf(t, f.Type, name, rows)
			continue
		case key == "-":
			continue
		case inner.Kind() == reflect.Struct && typeNames[inner] != "time":
			fieldsOf(t, inner, typeName(t, inner), rows)
		}
		rows["| "+name+" | `"+key+"` | "+typeName(t, f.Type)+" |"] = true
	}
}

var pageRow = regexp.MustCompile("(?m)^(\\| [a-z]+ \\| `[A-Za-z]+` \\| [A-Za-z ]+ \\|) .+ \\|$")

// The page has each field of a record with its type, and no other field.
func TestJournalPageHasEveryField(t *testing.T) {
	page, err := os.ReadFile(journalPage)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	fieldsOf(t, reflect.TypeFor[state.Volume](), "record", want)
	told := map[string]bool{}
	for _, m := range pageRow.FindAllSubmatch(page, -1) {
		row := string(m[1])
		if !want[row] {
			t.Errorf("%s: %s is no field of a record", journalPage, row)
		}
		if told[row] {
			t.Errorf("%s: %s is there twice", journalPage, row)
		}
		told[row] = true
	}
	for row := range want {
		if !told[row] {
			t.Errorf("%s: %s is not told", journalPage, row)
		}
	}
}

var (
	pageRecord = regexp.MustCompile("(?s)```json record\n(.*?)```")
	pageBucket = regexp.MustCompile("(?m)^\\| `meta` \\| `([a-zA-Z]+)` \\|")
	lineBreak  = regexp.MustCompile(`\n *`)
)

// The record that the page shows can be read, and is written again as it is shown.
func TestRecordOfJournalPageIsOne(t *testing.T) {
	page, err := os.ReadFile(journalPage)
	if err != nil {
		t.Fatal(err)
	}
	shown := pageRecord.FindSubmatch(page)
	if shown == nil {
		t.Fatalf("%s shows no record", journalPage)
	}
	text := lineBreak.ReplaceAll(shown[1], nil)
	v, err := DecodeRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := EncodeRecord(v)
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("%v: it is written as\n%s\nand not as\n%s", err, again, text)
	}
	if !v.InUse() || len(v.Mounts) != 1 {
		t.Errorf("it is no volume that a pod has: %+v", v)
	}
}

// The page has the keys of bucket meta.
func TestJournalPageHasTheKeysOfMeta(t *testing.T) {
	page, err := os.ReadFile(journalPage)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, m := range pageBucket.FindAllSubmatch(page, -1) {
		keys = append(keys, string(m[1]))
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{bootIDKey, formatKey, recoveryKey, sumsKey}) {
		t.Errorf("the page has %q", keys)
	}
}
