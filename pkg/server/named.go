package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Named serves the volumes that programs outside Kubernetes name (pkg/source/named).
type Named interface {
	// NamedVolumes lists them by name; who holds each is what the kernel showed last.
	NamedVolumes(ctx context.Context) ([]NamedVolume, error)
	// NamedVolume returns one, with its holders as the kernel shows them now.
	NamedVolume(ctx context.Context, name string) (NamedVolume, error)
	// CreateNamed makes one known, and returns once its claim has its storage.
	CreateNamed(ctx context.Context, r NamedRequest) error
	// MountNamed mounts one and returns where; it stays so while the kernel shows a holder.
	MountNamed(ctx context.Context, name string) (path string, err error)
	// RemoveNamed removes one; note says where storage is that stays.
	RemoveNamed(ctx context.Context, name string) (note string, err error)
}

// NamedRequest asks for a named volume.
type NamedRequest struct {
	Name string `json:"name"`
	// FrontEnd is docker, mount or nomad.
	FrontEnd string            `json:"frontEnd"`
	Options  map[string]string `json:"options,omitempty"`
	// Standing: it stays mounted until it is removed, across boots.
	Standing bool `json:"standing,omitempty"`
}

// NamedVolume is a volume that a program outside Kubernetes names.
type NamedVolume struct {
	Name     string `json:"name"`
	FrontEnd string `json:"frontEnd"`
	// Claim and Pod are the objects that it is here, as namespace/name.
	Claim   string    `json:"claim"`
	Pod     string    `json:"pod"`
	Created time.Time `json:"created,omitzero"`
	// Mountpoint is where users were last told to find it; "" while none does.
	Mountpoint string `json:"mountpoint,omitempty"`
	// Uses count the mounts that the front end has not ended, by its id of each.
	Uses     map[string]int `json:"uses,omitempty"`
	Standing bool           `json:"standing,omitempty"`
	// Holders are who has it, for people; HoldersUnknown says why that is not known.
	Holders        []string `json:"holders,omitempty"`
	HoldersUnknown string   `json:"holdersUnknown,omitempty"`
	// Waits say what keeps it from being mounted.
	Waits    []string `json:"waits,omitempty"`
	Removing bool     `json:"removing,omitempty"`
	Problem  string   `json:"problem,omitempty"`
}

// NamedMount is where a named volume is.
type NamedMount struct {
	Path string `json:"path"`
}

// Removed is what became of what was removed.
type Removed struct {
	Note string `json:"note,omitempty"`
}

// maxNamedRequest bounds a request for a named volume (bytes).
const maxNamedRequest = 64 << 10

// serveNamed adds the paths of named volumes.
func (s *Server) serveNamed(mux *http.ServeMux) {
	if s.cfg.Named == nil {
		return
	}
	mux.HandleFunc("GET /v1/named", func(w http.ResponseWriter, r *http.Request) {
		all, err := s.cfg.Named.NamedVolumes(r.Context())
		answerOr(s, w, List[NamedVolume]{Items: nonNil(all)}, err)
	})
	mux.HandleFunc("GET /v1/named/{name...}", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.cfg.Named.NamedVolume(r.Context(), r.PathValue("name"))
		answerOr(s, w, v, err)
	})
	mux.HandleFunc("POST /v1/named", s.createNamed)
	mux.HandleFunc("POST /v1/named-mounts/{name...}", func(w http.ResponseWriter, r *http.Request) {
		path, err := s.cfg.Named.MountNamed(r.Context(), r.PathValue("name"))
		answerOr(s, w, NamedMount{path}, err)
	})
	mux.HandleFunc("DELETE /v1/named/{name...}", func(w http.ResponseWriter, r *http.Request) {
		note, err := s.cfg.Named.RemoveNamed(r.Context(), r.PathValue("name"))
		s.note(r, "remove volume", r.PathValue("name"), note, err)
		answerOr(s, w, Removed{note}, err)
	})
}

// answerOr answers with v, or says what err is.
func answerOr[T any](s *Server, w http.ResponseWriter, v T, err error) {
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, v)
}

func (s *Server) createNamed(w http.ResponseWriter, r *http.Request) {
	d := json.NewDecoder(io.LimitReader(r.Body, maxNamedRequest))
	d.DisallowUnknownFields()
	var req NamedRequest
	if err := d.Decode(&req); err != nil {
		s.fail(w, fmt.Errorf("%w: create a named volume: %w", ErrInvalid, err))
		return
	}
	err := s.cfg.Named.CreateNamed(r.Context(), req)
	s.note(r, "create volume", req.Name, req.FrontEnd, err)
	if err != nil {
		s.fail(w, err)
		return
	}
	v, err := s.cfg.Named.NamedVolume(r.Context(), req.Name)
	answerOr(s, w, v, err)
}

// namedOf returns the named volumes that an explanation may be about: those of its pod, or of
// a pod that wants its volume. They are asked for their holders, which looks at every process.
func (s *Server) namedOf(ctx context.Context, f Facts, kind, name string) []NamedVolume {
	if s.cfg.Named == nil || kind != "pod" && kind != "volume" && kind != "pvc" {
		return nil
	}
	all, err := s.cfg.Named.NamedVolumes(ctx)
	if err != nil {
		return nil // the sources that have not spoken are told apart
	}
	about := func(v NamedVolume) bool { return kind == "pod" && v.Pod == name || v.Claim == name }
	if kind == "volume" {
		vol, _ := volumeNamed(f.Volumes, name)
		about = func(v NamedVolume) bool {
			return v.Claim == name || v.Claim != "" && vol.Volume.ID != "" && v.Claim == vol.Volume.Spec.Value().Claim
		}
	}
	all = slices.DeleteFunc(all, func(v NamedVolume) bool { return !about(v) })
	for i, v := range all {
		if now, err := s.cfg.Named.NamedVolume(ctx, v.Name); err == nil {
			all[i] = now
		}
	}
	return all
}

// explainNamed says which front end a volume goes through, and who has it by what it says and
// by what the kernel shows.
func (f Facts) explainNamed(e *Explanation) {
	for _, v := range f.Named {
		e.add("front end", "%s volume %s, by pod %s", v.FrontEnd, v.Name, v.Pod)
		counted := 0
		for _, n := range v.Uses {
			counted += n
		}
		switch {
		case v.HoldersUnknown != "":
			e.add("used by", "it is not known who has it: %s", v.HoldersUnknown)
		case len(v.Holders) > 0:
			e.add("used by", "%s", strings.Join(v.Holders, "; "))
		case counted > 0:
			e.add("used by", "no process that the kernel shows, although %s not ended by %s: a container that is about to "+
				"start, or an end that %s lost, which csi-volmgr gc finds", count(counted, "use"), v.FrontEnd, v.FrontEnd)
		case v.Standing:
			e.add("used by", "%s until the volume is deleted", v.FrontEnd)
		default:
			e.add("used by", "no process")
		}
		if v.Problem != "" {
			e.worsen(Stuck)
			e.add("because", "%s", v.Problem)
		}
	}
}
