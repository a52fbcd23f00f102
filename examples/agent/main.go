// Program agent runs the pods that a Kubernetes API server binds to a node, without
// a kubelet: it registers the Node, mounts the pods' volumes with csi-volmgr's pkg/node
// in this process, and runs their containers with a container runtime that speaks
// CRI. README.md lists the fields of a pod that it supports and those that it refuses.
//
// Its design: next (plan.go) decides the next step of a pod, and statusOf (status.go)
// its status for the API server; both are functions of the wanted state and of the
// runtime's state. All other code brings them facts or carries out their decisions.
// The agent keeps nothing on disk: it reads from the runtime what runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-volmgr/csi-volmgr/pkg/node"
)

// helperArg makes this program a helper of pkg/node, which runs calls that may hang.
const helperArg = "helper"

// options are the command line's flags.
type options struct {
	kubeconfig, name, ip, labels     string
	root, state, socket, logs        string
	runtime, hostPaths, registration string
	pods                             int64
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == helperArg {
		if err := node.ServeHelper(context.Background()); err != nil {
			log.Fatal(err)
		}
		return
	}
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "/etc/agent/kubeconfig", "how to reach the API server, as system:node:NAME")
	flag.StringVar(&o.name, "node-name", "", "the Node's name")
	flag.StringVar(&o.ip, "node-ip", "", "the Node's address; default: from which the API server is reached")
	flag.StringVar(&o.labels, "node-labels", "", "labels of the Node besides its host name's, as a=b,c=d")
	flag.StringVar(&o.registration, "register-with-taints", "", "taints of a new Node, as key=value:NoSchedule,...")
	flag.Int64Var(&o.pods, "max-pods", 110, "how many pods the Node takes")
	flag.StringVar(&o.runtime, "container-runtime-endpoint", "unix:///run/containerd/containerd.sock", "its CRI")
	flag.StringVar(&o.root, "root-dir", "/var/lib/kubelet", "where volumes are mounted, in the kubelet's layout")
	flag.StringVar(&o.state, "state-dir", "/var/lib/csi-volmgr", "where csi-volmgr remembers what it mounted")
	flag.StringVar(&o.socket, "socket", "/run/csi-volmgr/csi-volmgr.sock", "where csi-volmgr get asks how volumes stand")
	flag.StringVar(&o.hostPaths, "allow-host-path", "", "directories where hostPath and local volumes may be, as /a,/b")
	flag.StringVar(&o.logs, "log-dir", "/var/log/pods", "where the containers' output goes; nothing rotates it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, o); err != nil {
		log.Fatal(err)
	}
}

// serve serves the node until ctx ends. After that containers continue, and volumes stay mounted.
func serve(ctx context.Context, o options) error {
	cluster, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	cluster.QPS, cluster.Burst = 50, 100
	if o.ip == "" {
		if o.ip, err = localIP(cluster.Host); err != nil {
			return err
		}
	}
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return err
	}
	containers, err := connect(o.runtime, o.name, o.logs)
	if err != nil {
		return err
	}
	defer containers.Close()
	self, err := newNodeObject(client, o)
	if err != nil {
		return err
	}
	// csi-volmgr writes to the Node as soon as it starts.
	if err := self.register(ctx); err != nil {
		return fmt.Errorf("register node %s: %w", o.name, err)
	}
	n, err := volumeManager(o, cluster)
	if err != nil {
		return err
	}
	self.healthy = func(ctx context.Context) error {
		if err := n.Manager().Alive(ctx); err != nil {
			return fmt.Errorf("csi-volmgr: %w", err)
		}
		return containers.healthy(ctx)
	}
	a := newAgent(client, containers, volumeNode{n}, o)
	return all(ctx, n.Run, self.run, a.run)
}

// volumeManager builds csi-volmgr, with the API through which the program csi-volmgr
// shows the state of the volumes.
func volumeManager(o options, cluster *rest.Config) (*node.Node, error) {
	cfg := node.Config{
		Root: o.root, StateDir: o.state, RuntimeDir: filepath.Dir(o.socket), Name: o.name, Cluster: rest.CopyConfig(cluster),
		Socket: o.socket, Version: "agent",
		// A pod's volumes stay until the runtime agrees that its containers have ended,
		// also if the pod's object was deleted by force.
		ContainerRuntime: o.runtime,
		Helper:           func() *exec.Cmd { return exec.Command("/proc/self/exe", helperArg) },
	}
	if o.hostPaths != "" {
		cfg.HostPaths = strings.Split(o.hostPaths, ",")
	}
	return node.New(cfg)
}

// localIP returns the address from which this host reaches a URL; it sends no packet.
func localIP(host string) (string, error) {
	u, err := url.Parse(host)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	conn, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", fmt.Errorf("find the node's address (or give -node-ip): %w", err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// all runs parts until each has returned; the first part that returns ends the others.
func all(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error)
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	var errs []error
	for range parts {
		err := <-ended
		cancel()
		if !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// pairs reads a=b,c=d.
func pairs(text string) (map[string]string, error) {
	out := map[string]string{}
	for _, pair := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("label %q: want key=value", pair)
		}
		out[key] = value
	}
	return out, nil
}

// taints reads key=value:effect,key:effect.
func taints(text string) (out []corev1.Taint, err error) {
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		left, effect, ok := strings.Cut(one, ":")
		if !ok {
			return nil, fmt.Errorf("taint %q: want key=value:effect", one)
		}
		key, value, _ := strings.Cut(left, "=")
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return out, nil
}
