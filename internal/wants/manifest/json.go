package manifest

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	strictjson "sigs.k8s.io/json"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// maxFast limits the objects and nulls in an input to decodeJSON. Each may need some
// kilobytes.
const maxFast = 1 << 15

// decodeJSON decodes JSON documents, as programs send them, at a tenth of the cost of the YAML
// decoder. It returns false for anything that is not plain JSON or has any error; the YAML decoder
// then finds the line and the message. Both must return the same objects, and decodeJSON must not
// accept what the YAML decoder rejects. The only exception is line breaks before a colon, which
// JSON allows and YAML does not.
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
		obj, key, ok := decodeDocument(document)
		if !ok || seen[key] || len(objects) == MaxObjects {
			return nil, false
		}
		seen[key] = true
		objects = append(objects, obj)
	}
	return objects, true
}

// plain reports whether JSON in data has the same meaning in YAML: it is printable ASCII without
// the escapes that YAML does not have.
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

// cutDocument returns the JSON document at the start of data and what follows it. Before any
// document but the first there must be "---".
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

// decodeDocument decodes one document; it returns false if there is anything to report. The scanner
// has already found duplicate fields, which it does faster than the decoder.
func decodeDocument(document scanned) (object, resolve.Key, bool) {
	k, ok := kindNamed(document.kind)
	if !ok || document.apiVersion != k.apiVersion {
		return nil, resolve.Key{}, false
	}
	obj := k.make()
	if !unmarshal(document.text, obj) {
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
	case recycles(obj):
		return nil, resolve.Key{}, false
	}
	fill(obj, k, key)
	return obj, key, len(resolve.Check(obj)) == 0
}

// unmarshal decodes JSON into obj. It returns false for invalid JSON and unknown fields.
func unmarshal(text []byte, obj object) bool {
	wrong, err := strictjson.UnmarshalStrict(text, obj, strictjson.DisallowUnknownFields)
	return err == nil && len(wrong) == 0
}
