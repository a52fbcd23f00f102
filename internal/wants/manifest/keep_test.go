package manifest

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// full sets every field below v, except the object's kind.
func full(v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.Time:
		*p = metav1.Unix(1e9, 0)
		return
	case *resource.Quantity:
		*p = resource.MustParse("3Gi")
		return
	case *intstr.IntOrString:
		*p = intstr.FromString("http")
		return
	case *metav1.FieldsV1:
		p.SetRawString(`{"f:a":{}}`)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			full(v.Field(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		full(key)
		full(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		full(v.Index(1)) // the first element stays empty
	case reflect.String:
		v.SetString("some <text>\u00e4")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(7)
	default:
		v.SetInt(-7)
	}
}

// A stored object has every field that JSON has.
func TestWhatIsKeptHasEveryField(t *testing.T) {
	for _, k := range kinds {
		obj, back := k.make(), k.make()
		full(reflect.ValueOf(obj).Elem())
		b, err := Keep(obj)
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		switch back := back.(type) {
		case message:
			if err := back.Unmarshal(b[len(keptMark+k.name)+1:]); err != nil || back.Size() != len(b)-len(keptMark+k.name)-1 {
				t.Errorf("%s: %v, %d bytes of %d", k.name, err, back.Size(), len(b))
			}
		default:
			if !unmarshal(b, back) {
				t.Errorf("%s: kept as %s", k.name, b)
			}
		}
		want, err := Encode(obj)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Encode(back); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", k.name, err, got, want)
		}
	}
}

// A stored object with fields that this version does not know, or one that could not be applied, is an error.
func TestWhatIsKeptByAnotherVersion(t *testing.T) {
	keep := func(o object) string {
		b, err := Keep(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n"}}
	good := keep(pod)
	for text, what := range map[string]string{
		good:                          "as it is",
		good + "\xfa\x7f\x00":         "with an empty field of another version",
		good + "\xf8\x7f\x00":         "with a zero of another version",
		good + "\xfa\x7f\x02\x0a\x00": "with a message of another version that says nothing",
		keptMark + "Pod\x00\x0a\x06\x0a\x01a\x1a\x01n": "of a version that has fewer fields",
	} {
		if objects, err := Reload("kept", []byte(text)); err != nil || len(objects) != 1 || objects[0].GetObjectKind().GroupVersionKind().Kind != "Pod" {
			t.Errorf("%s: %v, %v", what, objects, err)
		}
	}
	for text, words := range map[string]string{
		good + "\xfa\x7f\x01x":              "found fields of a Pod that this version does not know",
		good[:len(good)-1]:                  "not a Pod",
		keptMark + "Gadget\x00":             `kind "Gadget"`,
		keptMark + "VolumeSnapshot\x00\x0a": "VolumeSnapshot in protobuf",
		keptMark + "Pod\x00":                "name",
		keptMark:                            `kind ""`,
		keep(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}):                                        "namespace",
		keep(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n"}}):           "namespace",
		keep(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", UID: "../escape/here"}}): "uid",
	} {
		if objects, err := Reload("kept", []byte(text)); err == nil || !strings.Contains(err.Error(), words) || !strings.HasPrefix(err.Error(), "kept: ") {
			t.Errorf("%q: %v, %v; want %q", text, objects, err, words)
		}
	}
}
