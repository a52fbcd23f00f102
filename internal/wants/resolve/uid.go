package resolve

import (
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// UID returns the uid for an object without one. It has the form of a UUID, and depends only on
// kind, namespace and name.
func UID(key Key) types.UID {
	sum := sha256.Sum256([]byte(key.Kind + "/" + key.Namespace + "/" + key.Name))
	b := sum[:16]
	b[6] = b[6]&0x0f | 0x80 // version 8: custom (RFC 9562)
	b[8] = b[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]))
}
