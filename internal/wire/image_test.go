package wire

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/imagetest"
)

const imageManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  securityContext: {fsGroup: 1234}
  containers:
  - name: app
    image: i
    volumeMounts:
    - {name: model, mountPath: /model}
    - {name: model, mountPath: /weights, subPath: weights}
  - {name: greedy, image: i, volumeMounts: [{name: model, mountPath: /x, subPath: missing}]}
  volumes:
  - {name: model, image: {reference: "registry.example.com/models/small:v1", pullPolicy: IfNotPresent}}
`

// Containers get an image read-only, whole or in part; a part that it lacks is an error. No pod may relabel it or
// give it to a group, and it is removed with the pod.
//
// Items: M13.
func TestContainersAreGivenAnImage(t *testing.T) {
	c := dirs(t)
	c.Images = []string{filepath.Join(filepath.Dir(c.Root), "images")}
	l := imagetest.New(t, filepath.Join(c.Images[0], "registry.example.com", "models", "small"))
	l.Add("v1", l.Image(imagetest.Layer(t, imagetest.File("readme", "x"), imagetest.Dir("weights"), imagetest.File("weights/0", "w"))))
	n, stop := start(t, c)
	apply(t, n, imageManifest)
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	mounts := must(t, n, "app")
	if m := mounts["/model"]; !m.ReadOnly || m.SELinuxRelabel {
		t.Errorf("the image: %+v, want it read-only and not relabelled", m)
	}
	for path, file := range map[string]string{"/model": "weights/0", "/weights": "0"} {
		m := mounts[path]
		if b, err := os.ReadFile(filepath.Join(m.HostPath, file)); err != nil || string(b) != "w" || !m.ReadOnly {
			t.Errorf("%s: %q, %v, read-only %v", path, b, err, m.ReadOnly)
		}
	}
	if _, err := n.ContainerMounts(within(t), app("greedy")); err == nil {
		t.Error("a part that the image does not have: got no error")
	}
	stop()
	n, _ = start(t, c)
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if err := n.DeletePod(within(t), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(c.Root, "plugins/kubernetes.io/image/trees")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the image's tree: %v", err)
	}
}

// The example's pod has its image.
func TestExampleOfAnImage(t *testing.T) {
	manifest, err := os.ReadFile("../../examples/image/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := dirs(t)
	c.Images = []string{filepath.Join(filepath.Dir(c.Root), "images")}
	l := imagetest.New(t, filepath.Join(c.Images[0], "registry.example.com", "models", "small"))
	l.Add("v1", l.Image(imagetest.Layer(t, imagetest.File("weights/0", "w"))))
	n, _ := start(t, c)
	apply(t, n, string(manifest))
	uid := uidOf(t, n, "model")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	mounts, err := n.ContainerMounts(within(t), server.Container{Namespace: "default", Pod: "model", Name: "app"})
	if err != nil || len(mounts) != 2 {
		t.Fatalf("%+v, %v", mounts, err)
	}
	if b, err := os.ReadFile(filepath.Join(mounts[1].HostPath, "0")); err != nil || string(b) != "w" {
		t.Errorf("%q, %v", b, err)
	}
	if err := n.DeletePod(within(t), "default", "model"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
}
