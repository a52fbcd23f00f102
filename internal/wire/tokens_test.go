package wire

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

// signer signs a token by writing down the request.
type signer struct{}

func (signer) Token(_ context.Context, r csiclient.TokenRequest) (csiclient.Token, error) {
	now := time.Now()
	return csiclient.Token{Value: r.Pod.ServiceAccount + " for " + r.Audience, Issued: now, Expires: now.Add(r.Lifetime)}, nil
}

// Items: L09, L10.
func TestAProjectedTokenIsWrittenAndRenewedBeforeItEnds(t *testing.T) {
	c := dirs(t)
	c.Tokens = signer{}
	n, _ := start(t, c)
	apply(t, n, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  serviceAccountName: robot
  securityContext: {runAsUser: 1000}
  containers: [{name: web, image: web, volumeMounts: [{name: id, mountPath: /id}]}]
  volumes: [{name: id, projected: {sources: [{serviceAccountToken: {path: token, audience: vault, expirationSeconds: 600}}]}}]
`)
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.Manager().GetMountedVolumesForPod(uid)["id"].HostPath, "token")
	if data, err := os.ReadFile(path); err != nil || string(data) != "robot for vault" {
		t.Errorf("token: %q, %v", data, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("token: %v, %v", st, err)
	}
	for _, v := range n.Manager().Volumes() {
		if in := time.Until(v.Volume.Mounts[uid].RenewAt); in <= 0 || in > 8*time.Minute {
			t.Errorf("renewed in %v, want at most four fifths of ten minutes", in)
		}
	}
}
