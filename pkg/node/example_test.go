package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/node"
)

// A program that runs pods itself embeds the volume manager in ten lines.
func ExampleNode() {
	dir, _ := os.MkdirTemp("", "node")
	defer os.RemoveAll(dir)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}}},
		Volumes:    []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}

	n, err := node.New(node.Config{Root: dir + "/root", StateDir: dir + "/state", Name: "here", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()

	volumes, err := n.MountPod(ctx, pod)
	fmt.Println(filepath.Base(volumes["scratch"].HostPath), err)
	fmt.Println(os.WriteFile(volumes["scratch"].HostPath+"/page", []byte("hello"), 0o600))
	fmt.Println(n.UnmountPod(ctx, pod))
	stop()
	fmt.Println(<-ended)
	// Output:
	// scratch <nil>
	// <nil>
	// <nil>
	// <nil>
}
