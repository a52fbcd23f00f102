// fakeapi is a small API server for measuring: it holds a workload's objects
// in memory and serves get, list, watch (also the streaming list), create,
// update, patch and the token request over HTTPS with HTTP/2, in protobuf or
// JSON, to real clients. It does no admission, no authorization and no
// validation: it is the cheapest API server there can be.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

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

type resInfo struct {
	gv   schema.GroupVersion
	kind string
	obj  runtime.Object
	list func() runtime.Object
}

var resources = map[string]resInfo{
	"nodes":                  {v1.SchemeGroupVersion, "Node", &v1.Node{}, func() runtime.Object { return &v1.NodeList{} }},
	"pods":                   {v1.SchemeGroupVersion, "Pod", &v1.Pod{}, func() runtime.Object { return &v1.PodList{} }},
	"persistentvolumes":      {v1.SchemeGroupVersion, "PersistentVolume", &v1.PersistentVolume{}, func() runtime.Object { return &v1.PersistentVolumeList{} }},
	"persistentvolumeclaims": {v1.SchemeGroupVersion, "PersistentVolumeClaim", &v1.PersistentVolumeClaim{}, func() runtime.Object { return &v1.PersistentVolumeClaimList{} }},
	"configmaps":             {v1.SchemeGroupVersion, "ConfigMap", &v1.ConfigMap{}, func() runtime.Object { return &v1.ConfigMapList{} }},
	"secrets":                {v1.SchemeGroupVersion, "Secret", &v1.Secret{}, func() runtime.Object { return &v1.SecretList{} }},
	"serviceaccounts":        {v1.SchemeGroupVersion, "ServiceAccount", &v1.ServiceAccount{}, func() runtime.Object { return &v1.ServiceAccountList{} }},
	"csidrivers":             {storagev1.SchemeGroupVersion, "CSIDriver", &storagev1.CSIDriver{}, func() runtime.Object { return &storagev1.CSIDriverList{} }},
	"csinodes":               {storagev1.SchemeGroupVersion, "CSINode", &storagev1.CSINode{}, func() runtime.Object { return &storagev1.CSINodeList{} }},
}

type watcher struct {
	res, ns, name string
	ch            chan watch.Event
}

type store struct {
	mu       sync.Mutex
	rv       int64
	objs     map[string]map[string]runtime.Object // resource -> ns/name
	watchers map[*watcher]struct{}
	counts   map[string]int64
}

// podOf is pod p of the workload, and what it names.
func podOf(p int) (*v1.Pod, []runtime.Object) {
	if *workload == "intree" {
		return objects.InTree(p, 0)
	}
	return objects.CSI(p, *volumes)
}

// serveChanges serves what a scheduler, users and whoever runs the pods do.
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

func key(ns, name string) string { return ns + "/" + name }

func (s *store) count(k string) {
	s.mu.Lock()
	s.counts[k]++
	s.mu.Unlock()
}

// put stores and tells the watchers.
func (s *store) put(res string, o runtime.Object) {
	a, _ := meta.Accessor(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	a.SetResourceVersion(strconv.FormatInt(s.rv, 10))
	o.GetObjectKind().SetGroupVersionKind(resources[res].gv.WithKind(resources[res].kind))
	if s.objs[res] == nil {
		s.objs[res] = map[string]runtime.Object{}
	}
	k := key(a.GetNamespace(), a.GetName())
	t := watch.Added
	if s.objs[res][k] != nil {
		t = watch.Modified
	}
	s.objs[res][k] = o
	s.tell(res, a, watch.Event{Type: t, Object: o})
}

// tell gives an event to the watchers that it concerns; s.mu is held.
func (s *store) tell(res string, a metav1.Object, e watch.Event) {
	for w := range s.watchers {
		if w.res == res && (w.ns == "" || w.ns == a.GetNamespace()) && (w.name == "" || w.name == a.GetName()) {
			select {
			case w.ch <- e:
			default:
				log.Printf("watcher of %s overflows", res)
			}
		}
	}
}

// remove deletes and tells the watchers.
func (s *store) remove(res, ns, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objs[res][key(ns, name)]
	if o == nil {
		return
	}
	delete(s.objs[res], key(ns, name))
	o = o.DeepCopyObject()
	a, _ := meta.Accessor(o)
	s.rv++
	a.SetResourceVersion(strconv.FormatInt(s.rv, 10))
	s.tell(res, a, watch.Event{Type: watch.Deleted, Object: o})
}

func (s *store) get(res, ns, name string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objs[res][key(ns, name)]
}

func (s *store) match(res, ns, name string) []runtime.Object {
	if name != "" {
		if o := s.objs[res][key(ns, name)]; o != nil {
			return []runtime.Object{o}
		}
		return nil
	}
	var l []runtime.Object
	for k, o := range s.objs[res] {
		if ns == "" || strings.HasPrefix(k, ns+"/") {
			l = append(l, o)
		}
	}
	return l
}

func serializer(accept string) runtime.SerializerInfo {
	for _, i := range scheme.Codecs.SupportedMediaTypes() {
		if i.MediaType == runtime.ContentTypeProtobuf && strings.Contains(accept, i.MediaType) {
			return i
		}
	}
	for _, i := range scheme.Codecs.SupportedMediaTypes() {
		if i.MediaType == runtime.ContentTypeJSON {
			return i
		}
	}
	panic("no JSON")
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, msg string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: msg})
}

func send(w http.ResponseWriter, r *http.Request, code int, o runtime.Object) {
	i := serializer(r.Header.Get("Accept"))
	var b bytes.Buffer
	if err := i.Serializer.Encode(o, &b); err != nil {
		fail(w, 500, metav1.StatusReasonInternalError, err.Error())
		return
	}
	w.Header().Set("Content-Type", i.MediaType)
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var rest []string
	switch {
	case len(p) > 2 && p[0] == "api":
		rest = p[2:]
	case len(p) > 3 && p[0] == "apis":
		rest = p[3:]
	default:
		fail(w, 404, metav1.StatusReasonNotFound, r.URL.Path)
		return
	}
	ns := ""
	if rest[0] == "namespaces" && len(rest) > 2 {
		ns, rest = rest[1], rest[2:]
	}
	res := rest[0]
	info, ok := resources[res]
	if !ok {
		s.count("unknown " + res)
		fail(w, 404, metav1.StatusReasonNotFound, res)
		return
	}
	name, sub := "", ""
	if len(rest) > 1 {
		name = rest[1]
	}
	if len(rest) > 2 {
		sub = rest[2]
	}
	q := r.URL.Query()
	switch {
	case r.Method == "GET" && name != "":
		s.count("get " + res)
		o := s.get(res, ns, name)
		if o == nil {
			fail(w, 404, metav1.StatusReasonNotFound, name)
			return
		}
		send(w, r, 200, o)
	case r.Method == "GET":
		if f := q.Get("fieldSelector"); strings.HasPrefix(f, "metadata.name=") {
			name = strings.TrimPrefix(f, "metadata.name=")
		}
		if q.Get("watch") == "true" || q.Get("watch") == "1" {
			s.count("watch " + res)
			s.watch(w, r, res, ns, name)
			return
		}
		s.count("list " + res)
		s.mu.Lock()
		items, rv := s.match(res, ns, name), s.rv
		s.mu.Unlock()
		l := info.list()
		_ = meta.SetList(l, items)
		la, _ := meta.ListAccessor(l)
		la.SetResourceVersion(strconv.FormatInt(rv, 10))
		l.GetObjectKind().SetGroupVersionKind(info.gv.WithKind(info.kind + "List"))
		send(w, r, 200, l)
	case r.Method == "POST" && sub == "token":
		s.count("create token")
		b, _ := io.ReadAll(r.Body)
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(b, nil, &authv1.TokenRequest{})
		if err != nil {
			fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		t := o.(*authv1.TokenRequest)
		t.SetGroupVersionKind(authv1.SchemeGroupVersion.WithKind("TokenRequest"))
		t.Status = authv1.TokenRequestStatus{Token: strings.Repeat("t", 1000), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
		send(w, r, 201, t)
	case r.Method == "POST" || r.Method == "PUT":
		s.count(strings.ToLower(r.Method) + " " + res)
		b, _ := io.ReadAll(r.Body)
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
		if err != nil {
			fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		s.put(res, o)
		send(w, r, 200, o)
	case r.Method == "PATCH":
		s.count("patch " + res)
		o := s.get(res, ns, name)
		if o == nil {
			fail(w, 404, metav1.StatusReasonNotFound, name)
			return
		}
		b, _ := io.ReadAll(r.Body)
		old, _ := json.Marshal(o)
		merged, err := strategicpatch.StrategicMergePatch(old, b, info.obj)
		if err != nil {
			fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		n, _, err := scheme.Codecs.UniversalDeserializer().Decode(merged, nil, nil)
		if err != nil {
			fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		s.put(res, n)
		send(w, r, 200, n)
	default:
		fail(w, 405, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
}

func (s *store) watch(w http.ResponseWriter, r *http.Request, res, ns, name string) {
	q := r.URL.Query()
	wt := &watcher{res: res, ns: ns, name: name, ch: make(chan watch.Event, 4096)}
	s.mu.Lock()
	var first []runtime.Object
	initial := q.Get("sendInitialEvents") == "true"
	if initial || q.Get("resourceVersion") == "" || q.Get("resourceVersion") == "0" {
		first = s.match(res, ns, name)
	} else if from, err := strconv.ParseInt(q.Get("resourceVersion"), 10, 64); err == nil {
		for _, o := range s.match(res, ns, name) {
			a, _ := meta.Accessor(o)
			if n, _ := strconv.ParseInt(a.GetResourceVersion(), 10, 64); n > from {
				first = append(first, o)
			}
		}
	}
	rv := s.rv
	s.watchers[wt] = struct{}{}
	s.mu.Unlock()
	defer func() { s.mu.Lock(); delete(s.watchers, wt); s.mu.Unlock() }()

	i := serializer(r.Header.Get("Accept"))
	ct := i.MediaType
	if ct != runtime.ContentTypeJSON {
		ct += ";stream=watch"
	}
	w.Header().Set("Content-Type", ct)
	w.WriteHeader(200)
	fl := w.(http.Flusher)
	fl.Flush()
	fw := i.StreamSerializer.Framer.NewFrameWriter(w)
	out := func(t watch.EventType, o runtime.Object) bool {
		var ob, eb bytes.Buffer
		if err := i.Serializer.Encode(o, &ob); err != nil {
			log.Print(err)
			return false
		}
		ev := &metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: ob.Bytes()}}
		if err := i.StreamSerializer.Serializer.Encode(ev, &eb); err != nil {
			log.Print(err)
			return false
		}
		if _, err := fw.Write(eb.Bytes()); err != nil {
			return false
		}
		return true
	}
	for _, o := range first {
		if !out(watch.Added, o) {
			return
		}
	}
	if initial {
		b := resources[res].obj.DeepCopyObject()
		b.GetObjectKind().SetGroupVersionKind(resources[res].gv.WithKind(resources[res].kind))
		a, _ := meta.Accessor(b)
		a.SetResourceVersion(strconv.FormatInt(rv, 10))
		a.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		if !out(watch.Bookmark, b) {
			return
		}
	}
	fl.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-wt.ch:
			if !out(e.Type, e.Object) {
				return
			}
			fl.Flush()
		}
	}
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
