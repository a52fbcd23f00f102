package resolve

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// defaultFileMode is the API's default of configMap.defaultMode.
const defaultFileMode int32 = 0o644

// builtin returns the want of a kind that is served in this process; config is
// its source as that kind defines it.
func (r *resolver) builtin(kind state.DriverName, v *corev1.Volume, config any) (state.VolumeWant, error) {
	b, err := json.Marshal(config)
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: encode volume %q: %w", r.name(), v.Name, err)
	}
	pod := podOf(r.pod)
	return state.VolumeWant{
		ID:   state.PodVolumeID(kind, pod.UID, v.Name),
		Spec: state.Spec{Driver: kind, Builtin: true, Name: v.Name, Mode: state.Filesystem, Config: b},
		Mount: state.MountSpec{
			Pod:     pod,
			Target:  r.config.Layout.BuiltinTarget(kind, pod.UID, v.Name),
			FSGroup: r.fsGroup(),
		},
	}, nil
}

func (r *resolver) emptyDir(v *corev1.Volume, field string) (state.VolumeWant, error) {
	src := v.EmptyDir
	if src == nil {
		src = &corev1.EmptyDirVolumeSource{}
	}
	if !knownMedium(src.Medium) {
		return state.VolumeWant{}, r.fault(Fault{field + ".medium", string(src.Medium), `"", Memory, HugePages or HugePages-<size>`})
	}
	if src.SizeLimit != nil && src.SizeLimit.Sign() < 0 {
		return state.VolumeWant{}, r.fault(Fault{field + ".sizeLimit", src.SizeLimit.String(), "zero or more"})
	}
	return r.builtin(EmptyDir, v, src)
}

func knownMedium(m corev1.StorageMedium) bool {
	switch m {
	case corev1.StorageMediumDefault, corev1.StorageMediumMemory, corev1.StorageMediumHugePages:
		return true
	}
	size, ok := strings.CutPrefix(string(m), string(corev1.StorageMediumHugePagesPrefix))
	if !ok {
		return false
	}
	q, err := resource.ParseQuantity(size)
	return err == nil && q.Sign() > 0
}

func (r *resolver) configMap(v *corev1.Volume, field string) (state.VolumeWant, error) {
	src := v.ConfigMap.DeepCopy()
	if src.DefaultMode == nil {
		mode := defaultFileMode
		src.DefaultMode = &mode
	}
	if f, bad := checkProjection(field, src.DefaultMode, src.Items); bad {
		return state.VolumeWant{}, r.fault(f)
	}
	if src.Name == "" {
		return state.VolumeWant{}, r.fault(Fault{field + ".name", "", "the name of a configMap"})
	}
	optional := src.Optional != nil && *src.Optional
	key := Key{KindConfigMap, r.pod.Namespace, src.Name}
	object, ok := r.objects.Get(key).(*corev1.ConfigMap)
	if !ok {
		if !optional {
			return state.VolumeWant{}, fmt.Errorf("%s: not found; want it, or optional: true in %s of %s", key, field, r.name())
		}
		object = &corev1.ConfigMap{}
	}
	files, err := selectFiles(object, src.Items, optional)
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: %w, which %s.items of %s selects", key, err, field, r.name())
	}
	w, err := r.builtin(ConfigMap, v, src)
	w.Revision = revision(files)
	return w, err
}

// selectFiles returns the content of the volume by path.
func selectFiles(object *corev1.ConfigMap, items []corev1.KeyToPath, optional bool) (map[string][]byte, error) {
	all := maps.Clone(object.BinaryData)
	if all == nil {
		all = map[string][]byte{}
	}
	for k, v := range object.Data {
		all[k] = []byte(v)
	}
	if len(items) == 0 {
		return all, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		content, ok := all[item.Key]
		if ok {
			files[item.Path] = content
		} else if !optional {
			return nil, fmt.Errorf("data: found no key %s", show(item.Key))
		}
	}
	return files, nil
}

// revision is a hash of the files' paths and contents, each with its length, so
// that no two sets of files share one.
func revision(files map[string][]byte) string {
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		part([]byte(path))
		part(files[path])
	}
	return hex.EncodeToString(h.Sum(nil))
}
