package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

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
