// Package fakeapi is a Kubernetes API server in memory, for tests in virtual time:
// lists and watches with field selectors and resource versions, conflicts, merge
// patches, and whatever failure a test wants. It is an http.RoundTripper, so
// nothing of a request leaves the process.
package fakeapi

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	certificatesv1client "k8s.io/client-go/kubernetes/typed/certificates/v1"
	certificatesv1beta1client "k8s.io/client-go/kubernetes/typed/certificates/v1beta1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
)

// Request is one request as the server saw it.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb                             string
	Resource, Sub, Namespace, Name   string
	FieldSelector, Version, BodyText string
	// API is the version of the group ("v1").
	API string
}

// String is "watch pods metadata.name=a", "get secrets default/a".
func (r Request) String() string {
	s := r.Verb + " " + r.Resource
	if r.Sub != "" {
		s += "/" + r.Sub
	}
	if r.Name != "" {
		s += " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
	}
	if r.FieldSelector != "" {
		s += " " + r.FieldSelector
	}
	return s
}

// Answer is a failure that a test wants in place of what the server would say.
type Answer struct {
	Code int
	// RetryAfter is a number of seconds, "" for none.
	RetryAfter string
	// Hang: no answer at all until the client gives up.
	Hang bool
	// Err is what the connection fails of.
	Err error
}

// Server is the API server. Its methods may be called by any goroutine.
type Server struct {
	mu       sync.Mutex
	fail     func(Request) *Answer
	version  int
	oldest   int // versions before are compacted
	objects  map[string]map[string]object
	history  []event
	watches  map[*watcher]bool
	requests []Request
	endless  bool
}

type object = map[string]any

type event struct {
	version             int
	kind, resource, key string
	object              object
}

type watcher struct {
	match func(event) bool
	life  time.Duration // 0 is for ever
	queue chan event
	end   chan struct{}
	once  sync.Once
}

// New returns a server without objects.
func New() *Server {
	return &Server{version: 1, objects: map[string]map[string]object{}, watches: map[*watcher]bool{}}
}

// Clients returns clients of the server, without limits of their own. wrap, unless
// nil, is between them and the server.
func (s *Server) Clients(wrap func(http.RoundTripper) http.RoundTripper) (corev1client.CoreV1Interface, storagev1client.StorageV1Interface) {
	c := s.config(wrap)
	return corev1client.NewForConfigOrDie(c), storagev1client.NewForConfigOrDie(c)
}

// LimitedClients are clients that may send so many requests a second, and at once.
func (s *Server) LimitedClients(wrap func(http.RoundTripper) http.RoundTripper, perSecond float32, atOnce int) (corev1client.CoreV1Interface, storagev1client.StorageV1Interface) {
	c := s.config(wrap)
	c.QPS, c.Burst = perSecond, atOnce
	return corev1client.NewForConfigOrDie(c), storagev1client.NewForConfigOrDie(c)
}

// Certificates and CertificatesBeta return other clients, as Clients does. They
// see the same objects.
func (s *Server) Certificates(wrap func(http.RoundTripper) http.RoundTripper) certificatesv1client.CertificatesV1Interface {
	return certificatesv1client.NewForConfigOrDie(s.config(wrap))
}

// CertificatesBeta is as Certificates.
func (s *Server) CertificatesBeta(wrap func(http.RoundTripper) http.RoundTripper) certificatesv1beta1client.CertificatesV1beta1Interface {
	return certificatesv1beta1client.NewForConfigOrDie(s.config(wrap))
}

func (s *Server) config(wrap func(http.RoundTripper) http.RoundTripper) *rest.Config {
	return &rest.Config{Host: "http://api.test", Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, WrapTransport: wrap}
}

// Fail has f decide about every request; nil answers, and a nil f, mean that the server answers.
func (s *Server) Fail(f func(Request) *Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Took returns the requests since it was last called.
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

// Get returns an object by resource ("nodes") and key ("a", "default/a"), false where there is none.
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
		w.close()
	}
}

// Endless has watches not end when the client asked for it, as with a connection
// of which one side is gone.
func (s *Server) Endless() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endless = true
}

// Compact forgets all versions: a watch that goes on from one is told 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.history = s.version, nil
}

func (w *watcher) close() { w.once.Do(func() { close(w.end) }) }

func kindOf(obj runtime.Object) string { return reflect.TypeOf(obj).Elem().Name() }

func resourceOf(obj runtime.Object) string { return strings.ToLower(kindOf(obj)) + "s" }

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
	m := o["metadata"].(object)
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
			w.queue <- e
		}
	}
}

// RoundTrip answers a request.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	q := parse(r)
	s.mu.Lock()
	s.requests = append(s.requests, q)
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if a := fail(q); a != nil {
			return a.respond(r)
		}
	}
	return s.answer(r, q), nil
}

func (a *Answer) respond(r *http.Request) (*http.Response, error) {
	if a.Hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if a.Err != nil {
		return nil, a.Err
	}
	resp := status(a.Code, "what the test wants")
	if a.RetryAfter != "" {
		resp.Header.Set("Retry-After", a.RetryAfter)
	}
	return resp, nil
}

func parse(r *http.Request) Request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	api := 1
	if parts[0] == "apis" {
		api = 2
	}
	version := parts[api]
	parts = parts[api+1:]
	q := Request{API: version, FieldSelector: r.URL.Query().Get("fieldSelector"), Version: r.URL.Query().Get("resourceVersion")}
	if parts[0] == "namespaces" && len(parts) > 2 {
		q.Namespace, parts = parts[1], parts[2:]
	}
	q.Resource = parts[0]
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Sub = parts[2]
	}
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		q.BodyText = string(b)
	}
	q.Verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	if q.Verb == "get" && q.Name == "" {
		q.Verb = "list"
		if r.URL.Query().Get("watch") != "" {
			q.Verb = "watch"
		}
	}
	return q
}

func (r Request) key() string { return strings.TrimPrefix(r.Namespace+"/"+r.Name, "/") }

// matches reports whether the object is what the request's selector means.
func (r Request) matches(o object) bool {
	m := o["metadata"].(object)
	if r.Namespace != "" && m["namespace"] != r.Namespace {
		return false
	}
	if r.FieldSelector == "" {
		return true
	}
	for term := range strings.SplitSeq(r.FieldSelector, ",") {
		field, value, _ := strings.Cut(term, "=")
		var at any = o
		for part := range strings.SplitSeq(field, ".") {
			in, ok := at.(object)
			if !ok {
				return false
			}
			at = in[part]
		}
		if at != value {
			return false
		}
	}
	return true
}

func (s *Server) answer(r *http.Request, q Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch q.Verb {
	case "watch":
		return s.watch(r, q)
	case "list":
		items := []object{}
		for _, key := range slices.Sorted(maps.Keys(s.objects[q.Resource])) {
			if o := s.objects[q.Resource][key]; q.matches(o) {
				items = append(items, o)
			}
		}
		return respond(http.StatusOK, object{"metadata": object{"resourceVersion": strconv.Itoa(s.version)}, "items": items})
	case "create":
		return s.create(q)
	}
	o, ok := s.objects[q.Resource][q.key()]
	if !ok {
		return status(http.StatusNotFound, q.Resource+" "+q.key()+" not found")
	}
	switch q.Verb {
	case "get":
		return respond(http.StatusOK, o)
	case "delete":
		s.remove(q.Resource, q.key())
		return respond(http.StatusOK, o)
	}
	var change object
	if err := json.Unmarshal([]byte(q.BodyText), &change); err != nil {
		return status(http.StatusBadRequest, err.Error())
	}
	if m, ok := change["metadata"].(object); ok {
		if v := m["resourceVersion"]; v != nil && v != o["metadata"].(object)["resourceVersion"] {
			return status(http.StatusConflict, "the object has been modified")
		}
	}
	if q.Verb == "patch" {
		change = merge(o, change)
	}
	return respond(http.StatusOK, s.store(q.Resource, change))
}

func (s *Server) create(q Request) *http.Response {
	var o object
	if err := json.Unmarshal([]byte(q.BodyText), &o); err != nil {
		return status(http.StatusBadRequest, err.Error())
	}
	if _, there := s.objects[q.Resource][keyOf(o)]; there {
		return status(http.StatusConflict, "there already")
	}
	return respond(http.StatusCreated, s.store(q.Resource, o))
}

// merge is a merge patch (RFC 7386).
func merge(o, change object) object {
	out := maps.Clone(o)
	if out == nil {
		out = object{}
	}
	for k, v := range change {
		sub, isObject := v.(object)
		switch {
		case v == nil:
			delete(out, k)
		case isObject:
			old, _ := out[k].(object)
			out[k] = merge(old, sub)
		default:
			out[k] = v
		}
	}
	return out
}

func (s *Server) watch(r *http.Request, q Request) *http.Response {
	from, err := strconv.Atoi(q.Version)
	if err != nil {
		return status(http.StatusBadRequest, "the tests' server has watches from a version only")
	}
	if from < s.oldest {
		return status(http.StatusGone, "too old resource version")
	}
	w := &watcher{queue: make(chan event, 10000), end: make(chan struct{})}
	if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil && !s.endless {
		w.life = time.Duration(seconds) * time.Second
	}
	w.match = func(e event) bool { return e.resource == q.Resource && q.matches(e.object) }
	for _, e := range s.history {
		if e.version > from && w.match(e) {
			w.queue <- e
		}
	}
	s.watches[w] = true
	body, to := io.Pipe()
	go s.serve(r, w, to)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// serve writes events until the watch ends.
func (s *Server) serve(r *http.Request, w *watcher, to *io.PipeWriter) {
	defer func() {
		s.mu.Lock()
		delete(s.watches, w)
		s.mu.Unlock()
		_ = to.Close()
	}()
	var over <-chan time.Time
	if w.life > 0 {
		timer := time.NewTimer(w.life)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-over:
			return
		case e := <-w.queue:
			s.mu.Lock()
			line, _ := json.Marshal(object{"type": e.kind, "object": e.object})
			s.mu.Unlock()
			if _, err := to.Write(append(line, '\n')); err != nil {
				return
			}
		case <-w.end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func respond(code int, o object) *http.Response {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b))}
}

func status(code int, message string) *http.Response {
	reasons := map[int]string{
		http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict", http.StatusGone: "Expired", http.StatusForbidden: "Forbidden",
		http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError", http.StatusUnauthorized: "Unauthorized",
	}
	return respond(code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reasons[code], "message": message})
}
