package operate

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// Large manifests are decoded one at a time, small ones do not wait for them, and a client
// can go while it waits for its turn or for its decoding.
func TestLargeManifestsAreDecodedOneAtATime(t *testing.T) {
	o := NewObjects(ObjectsConfig{})
	small := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	large := small + "data: {k: " + strings.Repeat("x", largeManifest) + "}\n"
	gone := errors.New("the client has gone")
	ended, end := context.WithCancelCause(t.Context())
	end(gone)

	o.decoding <- struct{}{}
	if _, err := o.decode(ended, server.Manifest{Name: "-", Data: []byte(large)}); !errors.Is(err, gone) || errors.Is(err, server.ErrInvalid) {
		t.Errorf("a large one while another is decoded: got %v", err)
	}
	if _, err := o.decode(t.Context(), server.Manifest{Name: "-", Data: []byte(small)}); err != nil {
		t.Errorf("a small one while a large one is decoded: got %v", err)
	}
	<-o.decoding
	for range 2 {
		if _, err := o.decode(t.Context(), server.Manifest{Name: "-", Data: []byte(large)}); err != nil {
			t.Errorf("a large one: got %v", err)
		}
	}
	if _, err := o.decode(ended, server.Manifest{Name: "-", Data: []byte(small)}); !errors.Is(err, gone) {
		t.Errorf("of a client that has gone: got %v", err)
	}
}
