package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
)

// maxRequest bounds the body of a request that is not a manifest (bytes).
const maxRequest = 64 << 10

// decodeBody decodes the first limit bytes of the body of r, a JSON object, into v. A
// field that v does not have is an error.
func decodeBody(r *http.Request, limit int64, v any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, limit))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// containerMounts serves the mounts of one container. It is a POST because it creates
// missing subPaths; a repeated request changes nothing.
func (s *Server) containerMounts(w http.ResponseWriter, r *http.Request) {
	c, err := readContainer(r)
	var mounts []ContainerMount
	if err == nil {
		if s.cfg.Containers == nil {
			err = fmt.Errorf("%w: this daemon does not serve containers", ErrNotFound)
		} else {
			mounts, err = s.cfg.Containers.ContainerMounts(r.Context(), c)
		}
	}
	s.reply(w, List[ContainerMount]{Items: nonNil(mounts)}, err)
}

func readContainer(r *http.Request) (Container, error) {
	var c Container
	// Without a body, the runtime supports no options.
	if err := decodeBody(r, maxRequest, &c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%w: the body: %w", ErrInvalid, err)
	}
	ns, pod, err := podName(r)
	if err != nil {
		return c, err
	}
	c.Namespace, c.Pod, c.Name = ns, pod, r.PathValue("container")
	if m := validation.NameIsDNSLabel(c.Name, false); len(m) > 0 {
		return c, fmt.Errorf("%w: container %.64q: %s", ErrInvalid, c.Name, strings.Join(m, "; "))
	}
	return c, nil
}
