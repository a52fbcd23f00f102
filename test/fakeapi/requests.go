package fakeapi

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is one request as the server saw it.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb                             string
	Resource, Sub, Namespace, Name   string
	FieldSelector, Version, BodyText string
	// API is the version of the group ("v1").
	API string
	// ContentType is the type of the body.
	ContentType string
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

// Answer is a failure that a test wants instead of the server's answer.
type Answer struct {
	Code int
	// RetryAfter is a number of seconds; "" for none.
	RetryAfter string
	// Hang: no answer at all until the client gives up.
	Hang bool
	// Err is the connection's error; with Late it comes after the request has been
	// carried out.
	Err  error
	Late bool
	// Body is the answer's body, if it is not a failure's.
	Body string
}

// RoundTrip answers a request.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	q := parse(r)
	s.mu.Lock()
	s.requests = append(s.requests, q)
	if s.allNodes {
		q.FieldSelector = strings.Join(slices.DeleteFunc(strings.Split(q.FieldSelector, ","), func(term string) bool {
			return strings.HasPrefix(term, "spec.nodeName=")
		}), ",")
	}
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if a := fail(q); a != nil {
			if a.Late {
				s.answer(r, q).Body.Close()
			}
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
	if a.Body != "" {
		return &http.Response{StatusCode: a.Code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(a.Body))}, nil
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
	q := Request{API: version, ContentType: r.Header.Get("Content-Type"), FieldSelector: r.URL.Query().Get("fieldSelector"), Version: r.URL.Query().Get("resourceVersion")}
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

// matches reports whether the request's selector selects the object.
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
	from := snapshot{s.version, s.objects}
	if s.behind != nil && (q.Verb == "list" || q.Verb == "get") {
		from = *s.behind
	}
	switch q.Verb {
	case "watch":
		return s.watch(r, q)
	case "list":
		found := map[string]object{}
		for key, o := range from.objects[q.Resource] {
			if q.matches(o) {
				found[key] = o
			}
		}
		items := []object{}
		for _, key := range slices.Sorted(maps.Keys(found)) {
			items = append(items, found[key])
		}
		return respond(http.StatusOK, object{"metadata": object{"resourceVersion": strconv.Itoa(from.version)}, "items": items})
	case "create":
		return s.create(q)
	}
	o, ok := from.objects[q.Resource][q.key()]
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
		if uid := m["uid"]; uid != nil && uid != o["metadata"].(object)["uid"] {
			return status(http.StatusConflict, "it is another object of that name")
		}
	}
	if q.Verb == "patch" {
		if q.ContentType == "application/strategic-merge-patch+json" {
			change = mergeConditions(o, change)
		}
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
		return failure(http.StatusConflict, "AlreadyExists", "there already")
	}
	return respond(http.StatusCreated, s.store(q.Resource, o))
}

// merge applies a merge patch (RFC 7386).
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

// mergeConditions returns the change with the object's other conditions, which a
// strategic merge patch keeps. It is the only list that the tests patch this way.
func mergeConditions(o, change object) object {
	status, _ := change["status"].(object)
	mine, there := status["conditions"].([]any)
	if !there {
		return change
	}
	had, _ := o["status"].(object)
	old, _ := had["conditions"].([]any)
	for _, c := range old {
		if !slices.ContainsFunc(mine, func(m any) bool { return m.(object)["type"] == c.(object)["type"] }) {
			mine = append(mine, c)
		}
	}
	status = maps.Clone(status)
	status["conditions"] = mine
	change = maps.Clone(change)
	change["status"] = status
	return change
}

func (s *Server) watch(r *http.Request, q Request) *http.Response {
	from, err := strconv.Atoi(q.Version)
	if err != nil {
		return status(http.StatusBadRequest, "the tests' server has watches from a version only")
	}
	if from < s.oldest && !s.goneInStream {
		return status(http.StatusGone, "too old resource version")
	}
	w := &watcher{poke: make(chan struct{}, 1), end: make(chan struct{})}
	if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil && !s.endless {
		w.life = time.Duration(seconds) * time.Second
	}
	w.match = func(e event) bool { return e.resource == q.Resource && q.matches(e.object) }
	if from < s.oldest {
		w.tell(gone)
		w.close()
	} else {
		s.watches[w] = true
	}
	for _, e := range s.history {
		if e.version > from && s.watches[w] && w.match(e) {
			w.tell(e)
		}
	}
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
	// write writes the queued events.
	write := func() error {
		s.mu.Lock()
		var lines []byte
		for _, e := range w.queue {
			line, _ := json.Marshal(object{"type": e.kind, "object": e.object})
			lines = append(append(lines, line...), '\n')
		}
		w.queue = nil
		s.mu.Unlock()
		if len(lines) == 0 {
			return nil
		}
		_, err := to.Write(lines)
		return err
	}
	for {
		select {
		case <-over:
			return
		case <-w.poke:
			if write() != nil {
				return
			}
		case <-w.end:
			_ = write() // the events before the end
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
	return failure(code, reasons[code], message)
}

func failure(code int, reason, message string) *http.Response {
	return respond(code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}
