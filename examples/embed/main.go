// Program embed is an agent that runs pods without a kubelet, reduced to its part for
// volumes: it mounts those of the pod in a manifest, prints their paths, and unmounts
// them at SIGTERM.
//
//	go run ./examples/embed -manifest pod.yaml -root /var/lib/kubelet
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/node"
)

func main() {
	// Helper processes make the calls that may hang, so that this process does not.
	if len(os.Args) == 2 && os.Args[1] == "helper" {
		if err := node.ServeHelper(context.Background()); err != nil {
			log.Fatal(err)
		}
		return
	}
	file := flag.String("manifest", "pod.yaml", "a file with one pod and the objects that it names")
	root := flag.String("root", "/var/lib/kubelet", "where volumes are mounted, in the kubelet's layout")
	state := flag.String("state", "/var/lib/embed", "where the agent remembers what it mounted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *file, *root, *state); err != nil {
		log.Fatal(err)
	}
}

// run starts a node for the pod of file and ends it when ctx has.
func run(ctx context.Context, file, root, state string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	objects, err := node.Decode(file, data)
	if err != nil {
		return err
	}
	var pod *corev1.Pod
	var beside []runtime.Object
	for _, obj := range objects {
		if p, ok := obj.(*corev1.Pod); ok && pod == nil {
			pod = p
			continue
		}
		beside = append(beside, obj)
	}
	if pod == nil {
		return fmt.Errorf("%s: no Pod in it", file)
	}
	n, err := node.New(node.Config{
		Root: root, StateDir: state, Name: "example",
		Helper: func() *exec.Cmd { return exec.Command("/proc/self/exe", "helper") },
	})
	if err != nil {
		return err
	}
	// The node continues while the pod is unmounted, so it has a context of its own.
	working, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(working) }()
	err = serve(ctx, n, pod, beside)
	end()
	return errors.Join(err, <-ended)
}

// serve keeps the pod's volumes mounted until ctx ends. A volume that is not mounted in
// time stays wanted, and the error says which volume waits for what.
func serve(ctx context.Context, n *node.Node, pod *corev1.Pod, beside []runtime.Object) error {
	volumes, err := n.MountPod(ctx, pod, beside...)
	if err != nil {
		return fmt.Errorf("mount the volumes of pod %s: %w", pod.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		fmt.Println(name, volumes[name].HostPath)
	}
	<-ctx.Done() // the pod's containers ran all this time, and have ended for good
	return n.UnmountPod(context.WithoutCancel(ctx), pod)
}
