package content

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ErrField means that a volume cannot contain this field of a pod.
var ErrField = errors.New("not a field that a volume may contain")

// DownwardAPI returns the files of a downwardAPI volume.
func (r Reader) DownwardAPI(src corev1.DownwardAPIVolumeSource) (Files, error) {
	d, err := newDefaults(src.DefaultMode, src.DefaultUser)
	if err != nil {
		return nil, err
	}
	return checked(r.downward(src.Items, d))
}

// downward returns a file for each item; its error joins those of all items.
func (r Reader) downward(items []corev1.DownwardAPIVolumeFile, d defaults) (Files, error) {
	pod, err := r.Objects.Pod()
	if err != nil {
		return nil, fmt.Errorf("get the pod: %w", err)
	}
	if pod == nil {
		return nil, fmt.Errorf("the pod: %w", ErrNotFound)
	}
	files := Files{}
	var errs []error
	for i, item := range items {
		if err := r.downwardItem(files, pod, item, d); err != nil {
			errs = append(errs, fmt.Errorf("items[%d].%w", i, err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return files, nil
}

func (r Reader) downwardItem(files Files, pod *corev1.Pod, item corev1.DownwardAPIVolumeFile, d defaults) error {
	var value string
	var err error
	switch f, q := item.FieldRef, item.ResourceFieldRef; {
	case (f == nil) == (q == nil):
		return errors.New("fieldRef and resourceFieldRef: want exactly one of them")
	case f != nil:
		if value, err = field(pod, f); err != nil {
			return fmt.Errorf("fieldRef: %w", err)
		}
	default:
		if value, err = r.resource(pod, q); err != nil {
			return fmt.Errorf("resourceFieldRef: %w", err)
		}
	}
	file, err := d.file([]byte(value), item.Mode, item.User)
	if err != nil {
		return err
	}
	if err := files.put(item.Path, file); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	return nil
}

// field returns a field of the pod's metadata as text. Like the kubelet, it returns "" for a label
// or annotation that the pod does not have.
func field(pod *corev1.Pod, ref *corev1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("apiVersion: found %.64q, want v1: %w", ref.APIVersion, ErrField)
	}
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	}
	if key, ok := subscript(ref.FieldPath, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(ref.FieldPath, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("fieldPath: found %.253q, want metadata.name, namespace, uid, labels, annotations, "+
		"labels['KEY'] or annotations['KEY']: %w",
		ref.FieldPath, ErrField)
}

// subscript returns KEY if path is name['KEY'].
func subscript(path, name string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, name+"['")
	if !ok {
		return "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return key, ok && key != "" && !strings.Contains(key, "'")
}

// lines returns a line key="value" for each entry, sorted by key, with the value quoted as in Go.
// The last line has no newline.
func lines(m map[string]string) string {
	all := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%s=%q", key, m[key]))
	}
	return strings.Join(all, "\n")
}
