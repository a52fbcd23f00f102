package ephemeral

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// bucket is the journal's bucket for the rows, by the claim's namespace/name.
const bucket = "ephemeral"

// version is the version of the rows that this code writes.
const version = 1

// record is the durable part of a row.
type record struct {
	Version int                           `json:"version"`
	Claim   *corev1.PersistentVolumeClaim `json:"claim"`
	// Going means that the pod is gone: the claim is deleted to the end.
	Going bool `json:"going,omitempty"`
}

// row is a claim that this package made.
type row struct {
	record
	// erasing means that its deletion runs.
	erasing bool
	// unreadable is why the journal's value could not be read; then there is no record.
	unreadable string
}

// owner returns the pod for which the claim was made.
func (r record) owner() (pod source.Key, uid types.UID) {
	o := metav1.GetControllerOf(r.Claim)
	return source.Key{Kind: resolve.KindPod, Namespace: r.Claim.Namespace, Name: o.Name}, o.UID
}

func claimKey(namespace, name string) source.Key {
	return source.Key{Kind: resolve.KindClaim, Namespace: namespace, Name: name}
}

// rowName is the key of a claim's row in the journal.
func rowName(claim source.Key) string { return claim.Namespace + "/" + claim.Name }

func encode(r record) ([]byte, error) {
	r.Version = version
	value, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the row of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err)
	}
	return value, nil
}

func decode(name string, value []byte) (r record, err error) {
	err = json.Unmarshal(value, &r)
	switch {
	case err != nil:
	case r.Version != version:
		err = fmt.Errorf("version %d, want %d", r.Version, version)
	case r.Claim == nil || r.Claim.Namespace+"/"+r.Claim.Name != name || metav1.GetControllerOf(r.Claim) == nil:
		err = errors.New("it is not of a pod's claim of that name")
	}
	if err != nil {
		return record{}, fmt.Errorf("decode the row of the ephemeral claim %s: %w", name, err)
	}
	return r, nil
}
