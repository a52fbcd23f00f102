package kube

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Limits of what is read of one answer and of one event of a watch. A node's largest answer is the list of its pods,
// of a few megabytes for hundreds of them; an object has at most the 1.5 MiB that etcd stores.
const (
	maxAnswer = 64 << 20
	maxEvent  = 16 << 20 // client-go's own limit for an event in protobuf
)

// bounded limits the body of an answer.
func bounded(r *http.Request, resp *http.Response) {
	switch {
	case resp.Body == nil:
	case isWatch(r):
		resp.Body = &eventReader{ReadCloser: resp.Body}
	default:
		resp.Body = &answerReader{ReadCloser: resp.Body, left: maxAnswer}
	}
}

func isWatch(r *http.Request) bool {
	switch r.URL.Query().Get("watch") {
	case "true", "1":
		return true
	}
	return false
}

// answerReader fails after left bytes.
type answerReader struct {
	io.ReadCloser
	left int
}

func (a *answerReader) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if a.left -= n; a.left < 0 {
		return 0, fmt.Errorf("the API server's answer is longer than %d MiB", maxAnswer>>20)
	}
	return n, err
}

// eventReader fails within an event in JSON that is too long: client-go reads it as a whole. It knows an event by its
// outermost braces. It leaves events in protobuf to client-go's own limit; a frame of them begins with its length in
// four bytes, and with a zero below 16 MiB.
type eventReader struct {
	io.ReadCloser
	size, depth     int
	quoted, escaped bool
	began, inFrames bool
}

func (e *eventReader) Read(b []byte) (int, error) {
	n, err := e.ReadCloser.Read(b)
	for _, c := range b[:n] {
		if !e.began {
			e.began, e.inFrames = true, c == 0
		}
		if e.inFrames {
			break
		}
		if e.size++; e.size > maxEvent {
			return 0, fmt.Errorf("an event of the API server's watch is longer than %d MiB", maxEvent>>20)
		}
		e.add(c)
	}
	return n, err
}

// add follows the braces of JSON.
func (e *eventReader) add(c byte) {
	switch {
	case e.escaped:
		e.escaped = false
	case e.quoted:
		e.escaped, e.quoted = c == '\\', c != '"'
	case c == '"':
		e.quoted = true
	case c == '{':
		e.depth++
	case c == '}':
		if e.depth--; e.depth <= 0 {
			e.size, e.depth = 0, 0
		}
	}
}

// elsewhere returns an error if an answer redirects to another server than the one that was asked: the node's token
// would go there, to http in clear.
func elsewhere(r *http.Request, resp *http.Response) error {
	if resp.StatusCode < 300 || resp.StatusCode > 399 {
		return nil
	}
	to, err := resp.Location()
	if err != nil || sameServer(r.URL, to) {
		return nil // client-go and net/http know what to do without a Location
	}
	return fmt.Errorf("the API server redirects to %s://%s, where csi-volmgr does not send its token: if that is the "+
		"API server, name it in the kubeconfig", to.Scheme, to.Host)
}

// sameServer reports whether b is the server a, or its https where a is http.
func sameServer(a, b *url.URL) bool {
	secured := a.Scheme == "http" && b.Scheme == "https"
	return a.Hostname() == b.Hostname() && (secured || a.Scheme == b.Scheme && portOf(a) == portOf(b))
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
