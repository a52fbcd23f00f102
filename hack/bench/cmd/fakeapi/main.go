// fakeapi is a small API server for measurements: it holds a workload's objects in memory
// and serves get, list, watch (also the streaming list), create, update, patch and the
// token request over HTTPS with HTTP/2, in protobuf or JSON, to real clients. It does no
// admission, authorization or validation: no API server is cheaper.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/objects"
)

var (
	addr     = flag.String("listen", "127.0.0.1:0", "address")
	addrFile = flag.String("address-file", "", "write the address here when serving")
	ctl      = flag.String("control-socket", "", "HTTP: /counts, /cpu, /put?pod=N, /delete?pod=N, /change?pod=N&gen=N (its configMap)")
	workload = flag.String("workload", "csi", "csi or intree")
	pods     = flag.Int("pods", 1, "pods")
	volumes  = flag.Int("volumes", 1, "volumes per pod (csi)")
)

// podOf returns pod p of the workload, and the objects that it names.
func podOf(p int) (*v1.Pod, []runtime.Object) {
	if *workload == "intree" {
		return objects.InTree(p, 0)
	}
	return objects.CSI(p, *volumes)
}

// serveChanges serves the changes that a scheduler, users and the agent that runs the pods make.
func (s *store) serveChanges(mux *http.ServeMux) {
	number := func(r *http.Request, name string) int {
		n, _ := strconv.Atoi(r.URL.Query().Get(name))
		return n
	}
	mux.HandleFunc("/put", func(_ http.ResponseWriter, r *http.Request) {
		pod, _ := podOf(number(r, "pod"))
		s.put("pods", pod)
	})
	mux.HandleFunc("/delete", func(_ http.ResponseWriter, r *http.Request) {
		s.remove("pods", objects.Namespace, objects.PodName(number(r, "pod")))
	})
	mux.HandleFunc("/change", func(_ http.ResponseWriter, r *http.Request) {
		s.put("configmaps", objects.ConfigMap(number(r, "pod"), number(r, "gen")))
	})
}

func cert() tls.Certificate {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	b, err := x509.CreateCertificate(rand.Reader, t, t, &k.PublicKey, k)
	if err != nil {
		log.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{b}, PrivateKey: k}
}

func main() {
	flag.Parse()
	s := &store{objs: map[string]map[string]runtime.Object{}, watchers: map[*watcher]struct{}{}, counts: map[string]int64{}}
	add := func(o runtime.Object) {
		for res, i := range resources {
			if fmt.Sprintf("%T", i.obj) == fmt.Sprintf("%T", o) {
				s.put(res, o)
				return
			}
		}
		log.Fatalf("no resource for %T", o)
	}
	for _, o := range objects.Cluster() {
		add(o)
	}
	for p := 0; p < *pods; p++ {
		_, l := podOf(p)
		for _, o := range l {
			add(o)
		}
	}
	if *ctl != "" {
		_ = os.Remove(*ctl)
		cl, err := net.Listen("unix", *ctl)
		if err != nil {
			log.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/counts", func(w http.ResponseWriter, _ *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = json.NewEncoder(w).Encode(s.counts)
		})
		mux.HandleFunc("/cpu", func(w http.ResponseWriter, _ *http.Request) {
			sn := benchdef.TakeSnap()
			_ = json.NewEncoder(w).Encode(sn.User + sn.Sys)
		})
		s.serveChanges(mux)
		go func() { log.Fatal(http.Serve(cl, mux)) }()
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	if *addrFile != "" {
		if err := os.WriteFile(*addrFile, []byte("https://"+l.Addr().String()), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	srv := &http.Server{Handler: s, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert()}, NextProtos: []string{"h2"}}, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000}}
	log.Fatal(srv.ServeTLS(l, "", ""))
}
