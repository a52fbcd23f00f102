package csiclient

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The size limits of CSI 1.13, "Size Limits", in bytes.
const (
	maxString = 128
	maxNodeID = 256
	maxMap    = 4 << 10 // all keys and values of one map together
	maxFlags  = 4 << 10 // all mount_flags together
	// maxGiven is for the maps of givenFields: as much as a record holds of a driver's answer, and less than etcd
	// holds of a secret.
	maxGiven = 256 << 10
)

// givenFields are maps that the driver itself answered, or that its storage needs. Some arrays have more to say
// than CSI allows, and every orchestrator sends it.
var givenFields = map[protoreflect.Name]bool{"publish_context": true, "volume_context": true, "secrets": true}

// pathFields are the fields without a limit in CSI: any path that the operating system allows.
var pathFields = map[protoreflect.Name]bool{
	"staging_target_path": true,
	"target_path":         true,
	"volume_path":         true,
	"volume_publish_path": true,
}

// limitError says why CSI forbids to send a request. It never contains a value of the
// request.
type limitError struct{ field, problem string }

func (e *limitError) Error() string { return e.field + ": " + e.problem }

// below prepends path, the parent of the field, to the field.
func (e *limitError) below(path string) *limitError {
	if e != nil {
		e.field = path + e.field
	}
	return e
}

// checkLimits returns an error about the first field of a request that exceeds CSI's
// limits or is not UTF-8, which protobuf demands (CSI 1.13, "Secrets Requirements").
func checkLimits(m proto.Message) error {
	if within(m) {
		return nil
	}
	if err := checkMessage(m.ProtoReflect()); err != nil {
		return err
	}
	return nil
}

// checkMessage and its callees build the field's path only when they return an error,
// because every request is checked and hardly any is refused.
func checkMessage(m protoreflect.Message) (err *limitError) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			err = checkMap(f, v.Map())
		case f.IsList():
			err = checkList(f, v.List())
		case f.Message() != nil:
			err = checkMessage(v.Message()).below(".")
		case f.Kind() == protoreflect.StringKind:
			err = checkString(f, v.String())
		}
		err = err.below(string(f.Name()))
		return err == nil
	})
	return err
}

func checkString(f protoreflect.FieldDescriptor, s string) *limitError {
	limit := maxString
	switch {
	case pathFields[f.Name()]:
		limit = len(s)
	case f.Name() == "node_id":
		limit = maxNodeID
	case isHandle(string(f.Name())):
		limit = state.MaxHandle
	}
	if len(s) > limit {
		return &limitError{"", fmt.Sprintf("%d bytes, CSI allows %d", len(s), limit)}
	}
	if !utf8.ValidString(s) {
		return &limitError{"", "not valid UTF-8"}
	}
	return nil
}

// isHandle reports whether a field has ids that the driver assigned. In some clouds these are
// resource paths that are longer than CSI allows; every orchestrator accepts them.
func isHandle(field string) bool {
	for _, name := range []string{"volume_id", "volume_ids", "snapshot_id", "snapshot_ids"} {
		if strings.HasSuffix(field, name) {
			return true
		}
	}
	return false
}

func checkMap(f protoreflect.FieldDescriptor, m protoreflect.Map) (err *limitError) {
	if f.MapValue().Kind() != protoreflect.StringKind {
		return nil
	}
	var size int
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		// Two tokens of a cluster already take 4 KiB, and every orchestrator sends them.
		if k.String() != tokensKey {
			size += len(k.String()) + len(v.String())
		}
		if !utf8.ValidString(k.String()) || !utf8.ValidString(v.String()) {
			err = &limitError{"", fmt.Sprintf("the value of key %q is not valid UTF-8", k.String())}
		}
		return err == nil
	})
	limit := maxMap
	if givenFields[f.Name()] {
		limit = maxGiven
	}
	if err == nil && size > limit {
		err = &limitError{"", fmt.Sprintf("%d bytes in all, at most %d are sent, and CSI allows %d", size, limit, maxMap)}
	}
	return err
}

// warnOversize logs, once for a connection, that a request which is sent has more in a map than CSI allows.
func (d *Driver) warnOversize(call string, m proto.Message) {
	warn := func(field string, values map[string]string) {
		size := 0
		for k, v := range values {
			if k != tokensKey {
				size += len(k) + len(v)
			}
		}
		if size > maxMap {
			d.oversize.Do(func() {
				d.log.Warn("a request has more than CSI allows in a map; it is sent, and the driver may refuse it", "call", call,
					"field", field, "bytes", size, "limit", maxMap)
			})
		}
	}
	if r, ok := m.(interface{ GetSecrets() map[string]string }); ok {
		warn("secrets", r.GetSecrets())
	}
	if r, ok := m.(interface{ GetVolumeContext() map[string]string }); ok {
		warn("volume_context", r.GetVolumeContext())
	}
	if r, ok := m.(interface{ GetPublishContext() map[string]string }); ok {
		warn("publish_context", r.GetPublishContext())
	}
}

func checkList(f protoreflect.FieldDescriptor, l protoreflect.List) (err *limitError) {
	var size int
	for i := range l.Len() {
		switch {
		case f.Message() != nil:
			err = checkMessage(l.Get(i).Message()).below(".")
		case f.Kind() == protoreflect.StringKind && f.Name() == "mount_flags":
			size += len(l.Get(i).String())
			if !utf8.ValidString(l.Get(i).String()) {
				err = &limitError{"", "not valid UTF-8"}
			}
		case f.Kind() == protoreflect.StringKind:
			err = checkString(f, l.Get(i).String())
		}
		if err != nil {
			return err.below(fmt.Sprintf("[%d]", i))
		}
	}
	if size > maxFlags {
		return &limitError{"", fmt.Sprintf("%d bytes in all, CSI allows %d", size, maxFlags)}
	}
	return nil
}
