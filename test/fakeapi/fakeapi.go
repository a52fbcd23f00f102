// Package fakeapi is a Kubernetes API server in memory, for tests in virtual time:
// lists and watches with field selectors and resource versions, conflicts, merge
// patches, and the failures that a test wants. It is an http.RoundTripper, so
// no request leaves the process.
package fakeapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
)

// Server is the API server. Its methods may be called by any goroutine.
type Server struct {
	mu       sync.Mutex
	fail     func(Request) *Answer
	version  int
	oldest   int // older versions are compacted
	objects  map[string]map[string]object
	history  []event
	watches  map[*watcher]bool
	requests []Request
	endless  bool
	// goneInStream: a watch that continues from too old a version gets an event that says so.
	goneInStream bool
	// behind is the state of another instance that lags; nil if none does.
	behind *snapshot
	// allNodes: see AllNodes.
	allNodes bool
}

// snapshot is what the server had at a version.
type snapshot struct {
	version int
	objects map[string]map[string]object
}

type object = map[string]any

type event struct {
	version             int
	kind, resource, key string
	object              object
}

type watcher struct {
	match func(event) bool
	life  time.Duration // 0 is endless
	queue []event       // guarded by the server's mu
	poke  chan struct{} // capacity 1: there is something in queue
	end   chan struct{}
	once  sync.Once
}

// tell queues an event for the watcher; the caller holds the server's mu.
func (w *watcher) tell(e event) {
	w.queue = append(w.queue, e)
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// New returns a server without objects.
func New() *Server {
	return &Server{version: 1, objects: map[string]map[string]object{}, watches: map[*watcher]bool{}}
}

// Clients returns clients of the server, without limits of their own. wrap, unless
// nil, wraps the transport between them and the server.
func (s *Server) Clients(wrap func(http.RoundTripper) http.RoundTripper) (*kubeclient.Core, *kubeclient.Storage) {
	c := s.config(wrap)
	made := clients(c)
	return made.Core, made.Storage
}

// LimitedClients returns clients with a limit of requests a second, and of requests at once.
func (s *Server) LimitedClients(wrap func(http.RoundTripper) http.RoundTripper, perSecond float32, atOnce int) (*kubeclient.Core, *kubeclient.Storage) {
	c := s.config(wrap)
	c.QPS, c.Burst = perSecond, atOnce
	made := clients(c)
	return made.Core, made.Storage
}

// Certificates and CertificatesBeta return other clients, as Clients does. They
// see the same objects.
func (s *Server) Certificates(wrap func(http.RoundTripper) http.RoundTripper) *kubeclient.Certificates {
	return clients(s.config(wrap)).Certificates
}

// CertificatesBeta is like Certificates for the beta API.
func (s *Server) CertificatesBeta(wrap func(http.RoundTripper) http.RoundTripper) *kubeclient.CertificatesBeta {
	return clients(s.config(wrap)).CertificatesBeta
}

// clients returns the clients of a configuration, which is always valid.
func clients(c *rest.Config) *kubeclient.Clients {
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		panic(err)
	}
	made, err := kubeclient.New(c, h)
	if err != nil {
		panic(err)
	}
	return made
}

func (s *Server) config(wrap func(http.RoundTripper) http.RoundTripper) *rest.Config {
	return &rest.Config{Host: "http://api.test", Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, WrapTransport: wrap}
}

// Fail lets f decide about every request; if f is nil or returns nil, the server answers.
func (s *Server) Fail(f func(Request) *Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Took returns the requests since its last call.
func (s *Server) Took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.requests {
		out = append(out, r.String())
	}
	s.requests = nil
	return out
}

// Put adds or replaces objects, as an administrator would.
func (s *Server) Put(objects ...runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range objects {
		b, err := json.Marshal(filled(obj))
		if err != nil {
			panic(err) // the test's own object
		}
		var o object
		if err := json.Unmarshal(b, &o); err != nil {
			panic(err)
		}
		o["kind"], o["apiVersion"] = kindOf(obj), "v1"
		if group := strings.Split(reflect.TypeOf(obj).Elem().PkgPath(), "/")[2]; group != "core" {
			o["apiVersion"] = group + ".k8s.io/v1"
		}
		s.store(resourceOf(obj), o)
	}
}

// Restored begins the versions again, as a restore of etcd from an earlier copy does: every watch ends, and none can go on
// from a version of before. What the copy has otherwise is to be put after it.
func (s *Server) Restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.tell(gone)
		s.end(w)
	}
	s.version, s.oldest, s.history = 1, 1, nil
}

// PutBack replaces an object as a restore of etcd from an earlier copy does: versions begin again from there.
func (s *Server) PutBack(obj runtime.Object) {
	s.mu.Lock()
	s.version, s.history = 1, nil
	s.mu.Unlock()
	s.Put(obj)
}

// Get returns an object by resource ("nodes") and key ("a", "default/a"), or false if there is none.
func (s *Server) Get(resource, key string, into runtime.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[resource][key]
	if !ok {
		return false
	}
	b, _ := json.Marshal(o)
	if err := json.Unmarshal(b, into); err != nil {
		panic(err)
	}
	return true
}

// Delete removes an object, as an administrator would.
func (s *Server) Delete(resource, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(resource, key)
}

// EndWatches ends every watch, as a restart of the server does.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		s.end(w)
	}
}

// end ends a watch: it gets no later event.
func (s *Server) end(w *watcher) {
	delete(s.watches, w)
	w.close()
}

// Endless makes watches continue past the timeout that the client asked for, as on a
// connection whose other side is gone.
func (s *Server) Endless() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endless = true
}

// Compact forgets all versions: a watch that continues from one gets 410, as its
// answer or, after GoneInStream, in an event.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
}

func (s *Server) compact() {
	s.version++
	s.oldest, s.history = s.version, nil
}

// GoneInStream makes the server report forgotten versions like the real one:
// it accepts the watch, and ends it with an event that has the status 410.
func (s *Server) GoneInStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goneInStream = true
}

// Expire forgets all versions, and ends every watch with an event that has the status 410.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
	for w := range s.watches {
		w.tell(gone)
		s.end(w)
	}
}

// gone sends a watch the event that its version is forgotten.
var gone = event{kind: "ERROR", object: object{
	"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": http.StatusGone, "message": "too old resource version",
}}

// AllNodes makes lists and watches of pods have the pods of all nodes, whatever node they select.
func (s *Server) AllNodes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allNodes = true
}

// Behind makes an instance with the server's current state answer all lists and gets,
// until Behind is called with false. Watches still come from the server itself.
func (s *Server) Behind(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = nil
	if is {
		s.behind = &snapshot{s.version, map[string]map[string]object{}}
		for resource, objects := range s.objects {
			s.behind.objects[resource] = maps.Clone(objects)
		}
	}
}

func (w *watcher) close() { w.once.Do(func() { close(w.end) }) }

func kindOf(obj runtime.Object) string { return reflect.TypeOf(obj).Elem().Name() }

func resourceOf(obj runtime.Object) string {
	return strings.TrimSuffix(strings.ToLower(kindOf(obj)), "s") + "s"
}

func keyOf(o object) string {
	m, _ := o["metadata"].(object)
	ns, _ := m["namespace"].(string)
	name, _ := m["name"].(string)
	return strings.TrimPrefix(ns+"/"+name, "/")
}

func (s *Server) store(resource string, o object) object {
	key := keyOf(o)
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]object{}
	}
	old, had := s.objects[resource][key]
	s.version++
	m := maps.Clone(o["metadata"].(object)) // a patched object shares it with earlier events
	o["metadata"] = m
	m["resourceVersion"] = strconv.Itoa(s.version)
	if m["uid"] == nil {
		m["uid"] = "uid-" + strconv.Itoa(s.version)
		if had {
			m["uid"] = old["metadata"].(object)["uid"]
		}
	}
	s.objects[resource][key] = o
	kind := "ADDED"
	if had {
		kind = "MODIFIED"
	}
	s.emit(event{s.version, kind, resource, key, o})
	return o
}

func (s *Server) remove(resource, key string) {
	o, ok := s.objects[resource][key]
	if !ok {
		return
	}
	delete(s.objects[resource], key)
	s.version++
	o = maps.Clone(o)
	m := maps.Clone(o["metadata"].(object))
	m["resourceVersion"] = strconv.Itoa(s.version)
	o["metadata"] = m
	s.emit(event{s.version, "DELETED", resource, key, o})
}

func (s *Server) emit(e event) {
	s.history = append(s.history, e)
	for w := range s.watches {
		if w.match(e) {
			w.tell(e)
		}
	}
}
