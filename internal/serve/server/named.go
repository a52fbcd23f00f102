package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
)

// Named serves the volumes that programs outside Kubernetes name (internal/wants/named).
type Named interface {
	NamedViews
	KeptNamed
	NamedMaker
	// MountNamed mounts one for a front end ("" is the operator, who reaches those of every front
	// end) and returns the path. It stays mounted while the kernel shows a holder.
	MountNamed(ctx context.Context, frontEnd, name string) (path string, err error)
	// RemoveNamed removes one. If its storage stays, note says where.
	RemoveNamed(ctx context.Context, r NamedRemoval) (note string, err error)
}

// NamedMaker makes named volumes and changes them.
type NamedMaker interface {
	// CreateNamed creates one and returns once its claim has storage.
	CreateNamed(ctx context.Context, r NamedRequest) error
	// ChangeNamed changes options of one.
	ChangeNamed(ctx context.Context, name string, c NamedChange) error
}

// NamedRemoval asks for the removal of a named volume.
type NamedRemoval struct {
	// FrontEnd is the front end that asks; "" is the operator.
	FrontEnd string
	// Namespace is Nomad's namespace that asks; "" if that is unknown.
	Namespace string
	By        audit.By
	Name      string
}

// NamedViews shows named volumes.
type NamedViews interface {
	// NamedVolumes lists them by name. Their holders are those that the kernel showed
	// at the last check.
	NamedVolumes(ctx context.Context) ([]NamedVolume, error)
	// NamedVolume returns one, with the holders that the kernel shows now.
	NamedVolume(ctx context.Context, name string) (NamedVolume, error)
}

// NamedChange changes options of a named volume.
type NamedChange struct {
	// Options are those to change: size, uid, gid, mode, reclaim.
	Options map[string]string `json:"options"`
}

// KeptNamed serves the data of removed volumes that is kept.
type KeptNamed interface {
	// KeptNamed lists it by name.
	KeptNamed(ctx context.Context) ([]NamedVolume, error)
	// RestoreNamed makes a volume of it again, of the name as or, if that is "", of its former name.
	RestoreNamed(ctx context.Context, name, as string) (NamedVolume, error)
}

// NamedRequest asks for a named volume.
type NamedRequest struct {
	Name string `json:"name"`
	// FrontEnd is docker, mount or nomad.
	FrontEnd string `json:"frontEnd"`
	// Namespace is the volume's namespace in Nomad, from which that of its claim follows.
	Namespace string            `json:"namespace,omitempty"`
	Options   map[string]string `json:"options,omitempty"`
	// LimitBytes is the largest size that a volume of Nomad may have; 0 means no limit.
	LimitBytes int64 `json:"limitBytes,omitempty"`
	// Standing: the volume stays mounted until it is removed, also across reboots.
	Standing bool `json:"standing,omitempty"`
	// PatienceSeconds is how long the creation waits for a driver that is not up; 0 means 4 seconds.
	PatienceSeconds int `json:"patienceSeconds,omitempty"`
}

// NamedVolume is a volume that a program outside Kubernetes names.
type NamedVolume struct {
	Name     string `json:"name"`
	FrontEnd string `json:"frontEnd"`
	// Claim and Pod are the objects that represent the volume here, as namespace/name.
	Claim   string    `json:"claim"`
	Pod     string    `json:"pod"`
	Created time.Time `json:"created,omitzero"`
	// Mountpoint is the path last given to a user; "" if there are no users.
	Mountpoint string `json:"mountpoint,omitempty"`
	// Uses counts the mounts that the front end has not ended, by the front end's id.
	Uses     map[string]int `json:"uses,omitempty"`
	Standing bool           `json:"standing,omitempty"`
	// Holders describes who has the volume open or mounted, for people. HoldersUnknown
	// says why that is unknown.
	Holders        []string `json:"holders,omitempty"`
	HoldersUnknown string   `json:"holdersUnknown,omitempty"`
	// Unheld says, of counted uses of a volume that no process has, since when that is so and what ends them.
	Unheld string `json:"unheld,omitempty"`
	// Waits says what the mount waits for.
	Waits    []string `json:"waits,omitempty"`
	Removing bool     `json:"removing,omitempty"`
	// Ends are the words, of the front end, that end the volume's use and remove it.
	Ends string `json:"ends,omitempty"`
	// Removed is when the volume Was was removed that left this data; both are zero for a volume that exists.
	Removed time.Time `json:"removed,omitzero"`
	Was     string    `json:"was,omitempty"`
	Problem string    `json:"problem,omitempty"`
}

// NamedMount says where a named volume is mounted.
type NamedMount struct {
	Path string `json:"path"`
}

// Removed is the outcome of a removal.
type Removed struct {
	Note string `json:"note,omitempty"`
}

// namedRoutes adds the paths of named volumes.
func (s *Server) namedRoutes(mux *http.ServeMux) {
	if s.cfg.Named == nil {
		return
	}
	mux.HandleFunc("GET /v1/named", func(w http.ResponseWriter, r *http.Request) {
		all, err := s.cfg.Named.NamedVolumes(r.Context())
		s.reply(w, List[NamedVolume]{Items: nonNil(all)}, err)
	})
	mux.HandleFunc("GET /v1/named/{name...}", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.cfg.Named.NamedVolume(r.Context(), r.PathValue("name"))
		s.reply(w, v, err)
	})
	mux.HandleFunc("POST /v1/named", s.createNamed)
	mux.HandleFunc("PATCH /v1/named/{name...}", s.changeNamed)
	mux.HandleFunc("POST /v1/named-mounts/{name...}", func(w http.ResponseWriter, r *http.Request) {
		path, err := s.cfg.Named.MountNamed(r.Context(), r.URL.Query().Get("frontEnd"), r.PathValue("name"))
		s.reply(w, NamedMount{path}, err)
	})
	mux.HandleFunc("DELETE /v1/named/{name...}", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		rm := NamedRemoval{
			FrontEnd: q.Get("frontEnd"), Namespace: q.Get("namespace"), By: requester(r), Name: r.PathValue("name"),
		}
		note, err := s.cfg.Named.RemoveNamed(r.Context(), rm)
		if s.cfg.Note != nil {
			act := audit.Act{By: rm.By, Verb: "remove volume", Object: rm.Name, Detail: FrontEndDetail(rm.FrontEnd)}
			s.cfg.Note(act, note, err)
		}
		s.reply(w, Removed{note}, err)
	})
	mux.HandleFunc("GET /v1/named-kept", func(w http.ResponseWriter, r *http.Request) {
		all, err := s.cfg.Named.KeptNamed(r.Context())
		s.reply(w, List[NamedVolume]{Items: nonNil(all)}, err)
	})
	mux.HandleFunc("POST /v1/named-restores/{name...}", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.cfg.Named.RestoreNamed(r.Context(), r.PathValue("name"), r.URL.Query().Get("as"))
		s.note(r, "restore volume", r.PathValue("name"), v.Name, err)
		s.reply(w, v, err)
	})
}

// FrontEndDetail is the detail of an act in the audit log that names the front end that asked; "" for the operator.
func FrontEndDetail(frontEnd string) string {
	if frontEnd == "" {
		return ""
	}
	return "for front end " + frontEnd
}

func (s *Server) createNamed(w http.ResponseWriter, r *http.Request) {
	var req NamedRequest
	if err := decodeBody(r, maxRequest, &req); err != nil {
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
	s.reply(w, v, err)
}

func (s *Server) changeNamed(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	var c NamedChange
	if err := decodeBody(r, maxRequest, &c); err != nil {
		s.fail(w, fmt.Errorf("%w: change a named volume: %w", ErrInvalid, err))
		return
	}
	err := s.cfg.Named.ChangeNamed(r.Context(), name, c)
	var words []string
	for _, k := range slices.Sorted(maps.Keys(c.Options)) {
		words = append(words, k+"="+c.Options[k])
	}
	s.note(r, "volume set", name, strings.Join(words, " "), err)
	if err != nil {
		s.fail(w, err)
		return
	}
	v, err := s.cfg.Named.NamedVolume(r.Context(), name)
	s.reply(w, v, err)
}

// namedOf returns the named volumes that the explained object may concern: those of the
// pod, or of the pods that want the volume. It looks up their current holders, for
// which it reads every process.
func (s *Server) namedOf(ctx context.Context, f Facts, kind, name string) []NamedVolume {
	if s.cfg.Named == nil || kind != "pod" && kind != "volume" && kind != "pvc" {
		return nil
	}
	all, err := s.cfg.Named.NamedVolumes(ctx)
	if err != nil {
		return nil // an error means that sources are not read yet; NotReady names them
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

// explainNamed says through which front end a volume is used, and by whom according to
// the front end and to the kernel.
func (f Facts) explainNamed(e *Explanation) {
	for _, v := range f.Named {
		e.add("front end", "%s volume %s, by pod %s", v.FrontEnd, v.Name, v.Pod)
		switch {
		case v.HoldersUnknown != "":
			e.add("used by", "unknown: %s", v.HoldersUnknown)
		case len(v.Holders) > 0:
			e.add("used by", "%s", strings.Join(v.Holders, "; "))
		case v.Unheld != "":
			e.add("used by", "%s", v.Unheld)
		case v.Standing:
			e.add("used by", "%s until the volume is deleted", v.FrontEnd)
		default:
			e.add("used by", "no process")
		}
		if v.Ends != "" {
			e.add("ends by", "%s", v.Ends)
		}
		if v.Problem != "" {
			e.worsen(Stuck)
			e.add("because", "%s", v.Problem)
		}
	}
}
