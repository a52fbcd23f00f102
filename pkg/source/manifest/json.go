package manifest

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	strictjson "sigs.k8s.io/json"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
)

// maxFast bounds what decodeJSON may make of one input: that many objects and
// nulls, and each may stand for some kilobytes.
const maxFast = 1 << 15

// decodeJSON decodes JSON documents, as programs apply them, at a tenth of what
// the reader of YAML costs. It is false, and nothing is decoded, for anything
// that is not plain JSON or in which anything is wrong: that reader knows the
// line, and the words for it. Nothing may be read otherwise than there, nor be read
// that is refused there but for where its line breaks are: JSON may have them
// before a colon, and YAML not.
func decodeJSON(data []byte) ([]runtime.Object, bool) {
	if !plain(data) || bytes.Count(data, []byte{'{'})+bytes.Count(data, []byte("null")) > maxFast {
		return nil, false
	}
	var objects []runtime.Object
	seen := map[resolve.Key]bool{}
	for len(bytes.TrimSpace(data)) > 0 {
		document, rest, ok := cutDocument(data)
		if !ok {
			return nil, false
		}
		data = rest
		obj, key, ok := strict(document)
		if !ok || seen[key] || len(objects) == MaxObjects {
			return nil, false
		}
		seen[key] = true
		objects = append(objects, obj)
	}
	return objects, true
}

// plain reports whether JSON of these bytes means the same in YAML: printable
// ASCII, without the escapes that YAML has not.
func plain(data []byte) bool {
	for i, c := range data {
		switch {
		case c == '\\':
			if i+1 < len(data) && (data[i+1] == '/' || data[i+1] == 'u') {
				return false
			}
		case c >= 0x7f, c < ' ' && c != '\n':
			return false
		}
	}
	return true
}

// cutDocument returns the JSON document that data begins with, after "---" where
// it is not the first, and what follows it.
func cutDocument(data []byte) (document scanned, rest []byte, ok bool) {
	data = bytes.TrimLeft(data, "\n")
	data, _ = bytes.CutPrefix(data, []byte("---\n"))
	if len(data) == 0 || data[0] != '{' {
		return scanned{}, nil, false
	}
	if document, ok = scan(data); !ok {
		return scanned{}, nil, false
	}
	rest = data[len(document.text):]
	next := bytes.TrimLeft(rest, "\n")
	if len(next) > 0 && (len(next) == len(rest) || !bytes.HasPrefix(next, []byte("---\n"))) {
		return scanned{}, nil, false
	}
	return document, rest, true
}

// strict decodes one document, if there is nothing to be said about it. That no
// field is there twice has been seen, for less than the decoder takes to see it.
func strict(document scanned) (object, resolve.Key, bool) {
	k, ok := kindNamed(document.kind)
	if !ok || document.apiVersion != k.apiVersion {
		return nil, resolve.Key{}, false
	}
	obj := k.make()
	if !known(document.text, obj) {
		return nil, resolve.Key{}, false
	}
	key := resolve.Key{Kind: k.name, Name: obj.GetName()}
	switch {
	case resolve.Namespaced(k.name):
		key.Namespace = obj.GetNamespace()
		if key.Namespace == "" {
			key.Namespace = metav1.NamespaceDefault
		}
	case obj.GetNamespace() != "":
		return nil, resolve.Key{}, false
	}
	fill(obj, k, key)
	return obj, key, len(resolve.Check(obj)) == 0
}

// known decodes JSON into obj. It is false for what is not JSON, and where a field
// is not one of the object's.
func known(text []byte, obj object) bool {
	wrong, err := strictjson.UnmarshalStrict(text, obj, strictjson.DisallowUnknownFields)
	return err == nil && len(wrong) == 0
}
