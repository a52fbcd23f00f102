package api

import (
	"iter"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// hidesPod reports whether one of the unreadable objects is a pod, or of a kind that only a newer version
// knows and that may want volumes as a pod does. The key says the kind, and a key is never damaged alone.
func hidesPod(keys iter.Seq[source.Key]) bool {
	known := manifest.KindNames()
	for key := range keys {
		if key.Kind == resolve.KindPod || !slices.Contains(known, key.Kind) {
			return true
		}
	}
	return false
}

// notReadable says why an object is unknown and what ends that.
func notReadable(key source.Key, why string) string {
	cure := "apply it again: csi-volmgr apply -f FILE"
	if key.Kind == resolve.KindSecret && key.Namespace == "" { // only the file of a secret has no namespace
		cure = "apply the secret again: csi-volmgr apply -f FILE; or remove the file and restart csi-volmgr"
	}
	return "the stored object cannot be read (" + why + "); " + cure
}

// problem is notReadable with what the loss of the object holds up.
func problem(key source.Key, why string) string {
	effect := "; pods that name it keep what they have"
	if hidesPod(slices.Values([]source.Key{key})) {
		effect = "; until then nothing that any pod has is removed"
	}
	return notReadable(key, why) + effect
}
