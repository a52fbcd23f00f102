package configmap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/payload"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNoKey means that a volume names a key that its ConfigMap does not have.
var ErrNoKey = errors.New("no such key")

// defaultMode is what an API server fills in where defaultMode is left out.
const defaultMode fs.FileMode = fs.FileMode(corev1.ConfigMapVolumeSourceDefaultMode)

func decode(spec state.Spec) (corev1.ConfigMapVolumeSource, error) {
	var src corev1.ConfigMapVolumeSource
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return src, fmt.Errorf("volume %s: configMap: %w", spec.Name, err)
	}
	if src.Name == "" {
		return src, fmt.Errorf("volume %s: configMap.name is empty", spec.Name)
	}
	return src, nil
}

func optional(src corev1.ConfigMapVolumeSource) bool { return src.Optional != nil && *src.Optional }

// pick returns the files that src selects of cm: all keys, or those of items
// under the paths they give. A key that is missing is an error unless src is
// optional.
func pick(cm *corev1.ConfigMap, src corev1.ConfigMapVolumeSource) (payload.Files, error) {
	mode, err := modeOf(src.DefaultMode, defaultMode)
	if err != nil {
		return nil, fmt.Errorf("defaultMode: %w", err)
	}
	data := content(cm)
	if len(src.Items) == 0 {
		files := payload.Files{}
		for key, value := range data {
			if err := put(files, key, payload.File{Data: value, Mode: mode}); err != nil {
				return nil, fmt.Errorf("key: %w", err)
			}
		}
		return files, nil
	}
	return selectItems(data, src, mode)
}

func selectItems(data map[string][]byte, src corev1.ConfigMapVolumeSource, mode fs.FileMode) (payload.Files, error) {
	files := payload.Files{}
	for i, item := range src.Items {
		value, ok := data[item.Key]
		if !ok && optional(src) {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("items[%d].key %q: %w", i, item.Key, ErrNoKey)
		}
		m, err := modeOf(item.Mode, mode)
		if err != nil {
			return nil, fmt.Errorf("items[%d].mode: %w", i, err)
		}
		if err := put(files, item.Path, payload.File{Data: value, Mode: m}); err != nil {
			return nil, fmt.Errorf("items[%d].path: %w", i, err)
		}
	}
	return files, nil
}

// put adds a file under its clean path.
func put(files payload.Files, path string, file payload.File) error {
	clean, err := payload.Clean(path)
	if err != nil {
		return err
	}
	files[clean] = file
	return nil
}

// content merges data and binaryData, which share no key where an API server
// checked them.
func content(cm *corev1.ConfigMap) map[string][]byte {
	all := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for key, value := range cm.Data {
		all[key] = []byte(value)
	}
	maps.Copy(all, cm.BinaryData)
	return all
}

func modeOf(given *int32, otherwise fs.FileMode) (fs.FileMode, error) {
	if given == nil {
		return otherwise, nil
	}
	if *given < 0 || *given > 0o777 {
		return 0, fmt.Errorf("%#o is not in 0 to 0777", *given)
	}
	return fs.FileMode(*given), nil
}
