package docker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

const (
	// maxRequest bounds a request's body (bytes). Operators type the options, and the
	// kernel bounds a command line's argument at 128 KiB.
	maxRequest = 256 << 10
	// contentType is the content type that dockerd and podman accept.
	contentType = "application/vnd.docker.plugins.v1.1+json"
)

// The protocol's requests. The protocol defines the fields' names.
type (
	noRequest     struct{}
	createRequest struct {
		Name string
		Opts map[string]string
	}
	nameRequest  struct{ Name string }
	mountRequest struct{ Name, ID string }
)

// request is one of the protocol's requests.
type request interface {
	// check returns an error if a field is missing that the protocol always sends.
	check() error
	// volume returns the name of the request's volume; "" if it names none.
	volume() string
}

func (noRequest) check() error       { return nil }
func (r createRequest) check() error { return given("Name", r.Name) }
func (r nameRequest) check() error   { return given("Name", r.Name) }
func (r mountRequest) check() error  { return errors.Join(given("Name", r.Name), given("ID", r.ID)) }

func (noRequest) volume() string       { return "" }
func (r createRequest) volume() string { return r.Name }
func (r nameRequest) volume() string   { return r.Name }
func (r mountRequest) volume() string  { return r.Name }

func given(field, value string) error {
	if value == "" {
		return fmt.Errorf("field %s: expected a text, found none", field)
	}
	return nil
}

// The protocol's answers.
type (
	done       struct{}
	failure    struct{ Err string }
	activation struct{ Implements []string }
	scope      struct{ Scope string }
	abilities  struct{ Capabilities scope }
	mountpoint struct{ Mountpoint string }
	found      struct{ Volume shown }
	listed     struct{ Volumes []shown }
	shown      struct {
		Name       string
		Mountpoint string         `json:",omitempty"`
		CreatedAt  string         `json:",omitempty"` // RFC 3339
		Status     map[string]any `json:",omitempty"`
	}
)

// toShown converts a view to the protocol's form. Its status holds the rest of the
// view, with the field names of csi-volmgr's API.
func toShown(v named.View) (shown, error) {
	out := shown{Name: v.Name, Mountpoint: v.Mountpoint}
	if !v.Created.IsZero() {
		out.CreatedAt = v.Created.UTC().Format(time.RFC3339)
	}
	all, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(all, &out.Status)
	}
	for _, field := range []string{"name", "mountpoint", "created"} {
		delete(out.Status, field)
	}
	return out, err
}

// decode reads the JSON object in a request's body into in. podman sends an empty body
// if a method takes no fields.
func decode(w http.ResponseWriter, r *http.Request, in any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("request of over %d bytes", maxRequest)
	}
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode the request: expected one JSON object, found more after it")
	}
	return nil
}
