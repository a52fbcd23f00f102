package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/client"
)

// An agent mounts the volumes of a pod, runs its containers, and says that they have
// stopped.
func Example() {
	c := client.New("/run/csi-volmgr/csi-volmgr.sock")
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pod := []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
	  "containers": [{"name": "app", "image": "web:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
	  "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}}`)
	if _, err := c.Apply(ctx, "web.json", pod); err != nil {
		fmt.Println(err)
		return
	}
	last, err := c.Wait(ctx, "default", "web", client.Mounted, func(p client.Progress) {
		for _, v := range p.Pod.Volumes {
			fmt.Println(v.Names, v.Mounted, v.Step, v.BlockedBy)
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Println("after a minute:", last.Pod.Volumes)
		return
	}
	mounts, err := c.ContainerMounts(ctx, "default", "web", "app", client.RuntimeFeatures{RecursiveReadOnly: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range mounts {
		fmt.Println("mount", m.HostPath, "at", m.ContainerPath)
	}
	// The containers have run and have stopped.
	if _, err := c.Withdraw(ctx, "web.json", pod); err != nil {
		fmt.Println(err)
	}
}

// The API has requests without a method here. The caller brings the type of the answer, with
// the fields that it needs.
func ExampleClient_Do() {
	c := client.New("/run/csi-volmgr/csi-volmgr.sock")
	defer c.Close()
	var sockets struct {
		Items []struct {
			Path    string `json:"path"`
			Problem string `json:"problem"`
		} `json:"items"`
	}
	err := c.Do(context.Background(), http.MethodGet, "/v1/sockets", nil, &sockets)
	if refused, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(refused.Reason, refused.Message)
		return
	}
	fmt.Println(sockets.Items, err)
}
