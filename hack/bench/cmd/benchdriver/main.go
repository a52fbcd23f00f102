// benchdriver is a small real CSI node driver for measuring managers. It
// serves Identity and Node over a unix socket, the kubelet's plugin
// registration API over another, and counters over a third.
//
// noop: NodePublish makes the target directory, nothing is mounted.
// bind: NodeStage binds a backing directory on the staging path with
// mount(2), NodePublish binds staging on target; the reverse is
// umount2(2)+rmdir(2).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

var (
	name       = flag.String("name", benchdef.DriverName, "driver name")
	mode       = flag.String("mode", "noop", "noop or bind")
	sock       = flag.String("socket", "", "CSI socket")
	regDir     = flag.String("registration-dir", "", "directory for the plugin registration socket (empty: none)")
	ctl        = flag.String("control-socket", "", "control socket: HTTP GET /stats, /reset")
	backing    = flag.String("backing-dir", "", "bind mode: where the volumes' directories are")
	latency    = flag.Duration("latency", 0, "delay of each volume call (stage, publish, unpublish, unstage, stats, expand)")
	latencyAll = flag.Bool("latency-all", false, "delay NodeGetCapabilities, NodeGetInfo and Identity calls too")
	stage      = flag.Bool("stage", true, "STAGE_UNSTAGE_VOLUME")
	stats      = flag.Bool("stats", true, "GET_VOLUME_STATS")
	expand     = flag.Bool("expand", true, "EXPAND_VOLUME")
	nodeID     = flag.String("node-id", "bench-node", "node ID")
	maxVols    = flag.Int64("max-volumes", 0, "NodeGetInfo max_volumes_per_node")
)

type registration struct {
	registerapi.UnimplementedRegistrationServer
	d *driver
}

func (r registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: *name, Endpoint: *sock, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registration) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		log.Printf("registration failed: %s", s.Error)
	}
	r.d.count("registered")
	return &registerapi.RegistrationStatusResponse{}, nil
}

type countListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}

func listen(p string) net.Listener {
	_ = os.Remove(p)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", p)
	if err != nil {
		log.Fatal(err)
	}
	return l
}

func main() {
	flag.Parse()
	if *sock == "" || (*mode != "noop" && *mode != "bind") {
		log.Fatal("need --socket and --mode=noop|bind")
	}
	if *mode == "bind" {
		if *backing == "" {
			log.Fatal("bind mode needs --backing-dir")
		}
		if err := os.MkdirAll(*backing, 0o755); err != nil {
			log.Fatal(err)
		}
	}
	d := &driver{calls: map[string]int64{}, log: map[string]*benchdef.VolumeLog{}, staged: map[string]string{}, pub: map[string]map[string]string{}}
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, d)
	csi.RegisterNodeServer(s, d)
	l := listen(*sock)
	go func() { log.Fatal(s.Serve(countListener{l, &d.conns})) }()

	if *ctl != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("/stats", func(w http.ResponseWriter, r *http.Request) {
			sn := benchdef.TakeSnap()
			_, peak := benchdef.RSS()
			d.mu.Lock()
			o := benchdef.DriverStats{Calls: map[string]int64{}, Conns: d.conns.Load(), CPU: sn.User + sn.Sys, RSS: peak, Staged: len(d.staged), Publshed: len(d.pub)}
			for k, v := range d.calls {
				o.Calls[k] = v
			}
			if r.URL.Query().Get("timeline") != "" {
				o.Timeline = map[string]benchdef.VolumeLog{}
				for k, v := range d.log {
					o.Timeline[k] = *v
				}
			}
			d.mu.Unlock()
			_ = json.NewEncoder(w).Encode(o)
		})
		mux.HandleFunc("/reset", func(w http.ResponseWriter, _ *http.Request) {
			d.mu.Lock()
			d.calls, d.log = map[string]int64{}, map[string]*benchdef.VolumeLog{}
			d.mu.Unlock()
			d.conns.Store(0)
			fmt.Fprintln(w, "{}")
		})
		cl := listen(*ctl)
		go func() { log.Fatal(http.Serve(cl, mux)) }()
	}

	var regSock string
	if *regDir != "" {
		regSock = filepath.Join(*regDir, *name+"-reg.sock")
		rs := grpc.NewServer()
		registerapi.RegisterRegistrationServer(rs, registration{d: d})
		rl := listen(regSock)
		go func() { log.Fatal(rs.Serve(rl)) }()
	}

	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
	if regSock != "" {
		_ = os.Remove(regSock)
	}
	_ = os.Remove(*sock)
}
