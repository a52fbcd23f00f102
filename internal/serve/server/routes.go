package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// apiHandler serves the paths under /v1 to peers that the credential check admits.
func (s *Server) apiHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/version", s.version)
	mux.HandleFunc("GET /v1/pods", s.listPods)
	mux.HandleFunc("GET /v1/pods/{ns}/{name}", s.pod)
	mux.HandleFunc("GET /v1/pods/{ns}/{name}/mounts", s.podMounts)
	mux.HandleFunc("POST /v1/pods/{ns}/{name}/containers/{container}/mounts", s.containerMounts)
	mux.HandleFunc("GET /v1/pods/{ns}/{name}/wait", s.wait)
	mux.HandleFunc("DELETE /v1/pods/{ns}/{name}",
		s.deleteObject("pod", func(r *http.Request, ns, name string) (string, error) {
			err := s.cfg.Objects.DeletePod(r.Context(), ns, name)
			s.note(r, "delete pod", ns+"/"+name, "", err)
			return "", err
		}))
	mux.HandleFunc("GET /v1/mounts", s.mounts)
	mux.HandleFunc("GET /v1/volumes", serveList(s, s.cfg.Volumes.Changed, s.volumesFor, volumeKey))
	mux.HandleFunc("GET /v1/volumes/{id...}", s.volume)
	mux.HandleFunc("GET /v1/drivers", serveList(s, s.cfg.Volumes.Changed, forAllPeers(s.driversShown), driverKey))
	mux.HandleFunc("GET /v1/claims", serveList(s, s.cfg.Claims.Changed, forAllPeers(s.cfg.Claims.Claims), claimKey))
	mux.HandleFunc("DELETE /v1/claims/{ns}/{name}",
		s.deleteObject("claim", func(r *http.Request, ns, name string) (string, error) {
			q := r.URL.Query()
			d := ClaimDeletion{
				Namespace: ns, Name: name, Reason: strings.TrimSpace(q.Get("reason")),
				Data: q.Get("data") == "true",
			}
			return s.cfg.Objects.DeleteClaim(r.Context(), requester(r), d)
		}))
	mux.HandleFunc("GET /v1/persistentvolumes",
		serveList(s, s.cfg.Claims.Changed, forAllPeers(s.cfg.Claims.PersistentVolumes), pvKey))
	mux.HandleFunc("GET /v1/objects/{kind}", s.objects)
	mux.HandleFunc("GET /v1/stats", s.figures)
	mux.HandleFunc("GET /v1/problems", func(w http.ResponseWriter, r *http.Request) {
		f := s.withProcesses(r.Context())
		s.answer(w, List[Problem]{Items: nonNil(append(f.Problems, f.StuckProblems()...))})
	})
	mux.HandleFunc("GET /v1/sockets", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, List[SocketStatus]{Items: nonNil(s.cfg.Health.Sockets())})
	})
	s.manifestRoutes(mux)
	mux.HandleFunc("GET /v1/explain/{kind}/{name...}", s.explain)
	mux.HandleFunc("GET /v1/trace", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, List[EndedCall]{Items: nonNil(each(s.cfg.Trace.AllCalls(), endedCall))})
	})
	mux.HandleFunc("GET /v1/trace/{kind}/{name...}", s.trace)
	mux.Handle("GET /ui/", s.page())
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.metrics())
	}
	s.operatorRoutes(mux)
	s.namedRoutes(mux)
	if s.cfg.Profiles {
		mux.Handle("/debug/pprof/", profiles(s))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, fmt.Errorf("%w: no %s %s in this API", ErrNotFound, r.Method, r.URL.Path))
	})
	return s.forPeers(mux)
}

// forPeers wraps api with the check that the peer may make the request.
func (s *Server) forPeers(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := peerOf(r)
		if err := p.allowed(r.Method, s.cfg.Readers); err != nil {
			s.cfg.Logger.Warn("api call refused", "uid", p.uid, "pid", p.pid, "err", err)
			s.fail(w, err)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// objects lists the objects of a kind; the list of an unknown kind is empty.
func (s *Server) objects(w http.ResponseWriter, r *http.Request) {
	var all []Object
	if s.cfg.Catalog != nil {
		all = s.cfg.Catalog(r.PathValue("kind"))
	}
	s.answer(w, List[Object]{Items: nonNil(all)})
}

// drivers returns the drivers; built-in kinds with the programs that they lack.
func (s *Server) drivers() []manager.DriverStatus {
	all := s.cfg.Volumes.Drivers()
	if s.cfg.Lacks == nil {
		return all
	}
	all = slices.Clone(all)
	for i, d := range all {
		if d.Builtin {
			all[i].Lacks = s.cfg.Lacks(d.Name)
		}
	}
	return all
}

func (s *Server) driversShown() []DriverStatus {
	all := each(s.drivers(), driverStatus)
	for i, d := range all {
		if s.cfg.Controller != nil && !d.Builtin {
			all[i].Controller = s.cfg.Controller(d.Name)
		}
	}
	return all
}

func volumeKey(v VolumeStatus) string { return string(v.Volume.ID) }
func driverKey(d DriverStatus) string { return string(d.Name) }
func claimKey(c ClaimStatus) string   { return c.Namespace + "/" + c.Name }
func pvKey(v PVStatus) string         { return v.Name }

func (s *Server) version(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.cfg.Version) }

func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	p, err := s.podOf(r)
	s.reply(w, podStatus(p), err)
}

// podOf returns the pod that the request's path names.
func (s *Server) podOf(r *http.Request) (manager.PodStatus, error) {
	ns, name, err := podName(r)
	if err != nil {
		return manager.PodStatus{}, err
	}
	pods := s.cfg.Volumes.Pods()
	p, ok := podNamed(pods, ns, name)
	if !ok {
		return manager.PodStatus{}, NotKnown("pod", ns, name, NamespacesOf(podKeys(pods), name))
	}
	return p, nil
}

func (s *Server) podMounts(w http.ResponseWriter, r *http.Request) {
	p, err := s.podOf(r)
	s.reply(w, List[Mount]{Items: nonNil(s.mountsOf(p))}, err)
}

func (s *Server) mounts(w http.ResponseWriter, _ *http.Request) {
	var all []Mount
	for _, p := range s.cfg.Volumes.Pods() {
		all = append(all, s.mountsOf(p)...)
	}
	s.answer(w, List[Mount]{Items: nonNil(all)})
}

func (s *Server) volume(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	v, ok := s.cfg.Volumes.Volume(state.VolumeID(id))
	if !ok {
		s.fail(w, fmt.Errorf("%w: volume %q is not known here", ErrNotFound, id))
		return
	}
	shown := volumeStatus(v)
	if !peerOf(r).owner() {
		shown = forReader(shown)
	}
	s.answer(w, shown)
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	f, kind, name := s.withProcesses(r.Context()), r.PathValue("kind"), r.PathValue("name")
	f.Named = s.namedOf(r.Context(), f, kind, name)
	e, err := Explain(f, kind, name)
	s.reply(w, e, err)
}

func (s *Server) facts() Facts {
	pods := s.cfg.Volumes.Pods()
	var classes []string
	if s.cfg.Catalog != nil {
		for _, class := range s.cfg.Catalog("StorageClass") {
			classes = append(classes, class.Name)
		}
	}
	drivers := s.drivers()
	return Facts{
		Pods: pods, Ends: s.ends(pods), Classes: classes, Volumes: s.cfg.Volumes.Volumes(), Drivers: drivers,
		Controllers: s.controllers(drivers),
		Claims:      s.cfg.Claims.Claims(), PersistentVolumes: s.cfg.Claims.PersistentVolumes(),
		Snapshots: s.cfg.Claims.Snapshots(), Groups: s.cfg.Claims.GroupSnapshots(),
		Problems: s.cfg.Health.Problems(), Sockets: s.cfg.Health.Sockets(), NotReady: s.cfg.Health.NotReady(),
		Stats: s.lastStats(), Cluster: s.cfg.Version.Cluster, Now: s.cfg.Now(),
	}
}

// ends returns the words that end the pods that csi-volmgr delete pod does not end.
func (s *Server) ends(pods []manager.PodStatus) Ends {
	ends := Ends{}
	for _, p := range pods {
		if s.cfg.Ends == nil {
			break
		}
		if words := s.cfg.Ends(p.Pod.Namespace, p.Pod.Name); words != "" {
			ends[p.Pod.Namespace+"/"+p.Pod.Name] = words
		}
	}
	return ends
}

// withProcesses is facts plus, for drivers that answered OK without an effect, why
// their mounts do not reach this node. For that it inspects the drivers' processes.
func (s *Server) withProcesses(ctx context.Context) Facts {
	f := s.facts()
	noEffect := map[state.DriverName]bool{}
	for _, v := range f.Volumes {
		for _, m := range v.Volume.Mounts {
			if m.NoEffect > 0 {
				noEffect[v.Volume.Spec.Driver] = true
			}
		}
	}
	if s.cfg.Unreached == nil || len(noEffect) == 0 {
		return f
	}
	f.Drivers = slices.Clone(f.Drivers)
	for i, d := range f.Drivers {
		if noEffect[d.Name] && d.Up && d.Endpoint != "" {
			f.Drivers[i].Unreached = s.cfg.Unreached(ctx, d.Endpoint)
		}
	}
	return f
}

func (s *Server) figures(w http.ResponseWriter, r *http.Request) {
	var all []stats.Status
	if s.cfg.Stats != nil {
		all = s.cfg.Stats.Stats(r.Context())
	}
	s.answer(w, List[stats.Status]{Items: nonNil(all)})
}

// lastStats returns the latest statistics without asking any driver.
func (s *Server) lastStats() []stats.Status {
	if s.cfg.Stats == nil {
		return nil
	}
	return s.cfg.Stats.LastStats()
}

// deleteObject serves a DELETE request and logs who sent it.
func (s *Server) deleteObject(kind string, do func(r *http.Request, ns, name string) (note string,
	err error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		note := ""
		ns, name, err := podName(r)
		if err == nil {
			note, err = do(r, ns, name)
		}
		p := peerOf(r)
		who := []any{"kind", kind, "object", ns + "/" + name, "uid", p.uid, "pid", p.pid}
		if err != nil {
			s.cfg.Logger.Info("deletion refused", append(who, "err", err)...)
			s.fail(w, err)
			return
		}
		s.cfg.Logger.Info("object deleted", who...)
		s.answer(w, Applied{Kind: kind, Namespace: ns, Name: name, Result: "deleted", Note: note})
	}
}

// note records in the audit log what r asked for.
func (s *Server) note(r *http.Request, verb, object, result string, err error) {
	if s.cfg.Note != nil {
		s.cfg.Note(audit.Act{By: requester(r), Verb: verb, Object: object}, result, err)
	}
}

// podName reads namespace and name from a request's path. Both must be names that
// Kubernetes allows; such names contain no path separator.
func podName(r *http.Request) (ns, name string, err error) {
	ns, name = r.PathValue("ns"), r.PathValue("name")
	if m := validation.ValidateNamespaceName(ns, false); len(m) > 0 {
		return "", "", fmt.Errorf("%w: namespace %q: %s", ErrInvalid, ns, strings.Join(m, "; "))
	}
	if m := validation.NameIsDNSSubdomain(name, false); len(m) > 0 {
		return "", "", fmt.Errorf("%w: name %q: %s", ErrInvalid, name, strings.Join(m, "; "))
	}
	return ns, name, nil
}

// nonNil returns an empty list for a nil one, so that JSON has [] and not null.
func nonNil[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// reply answers with v, or with err if it is not nil.
func (s *Server) reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, v)
}

func (s *Server) answer(w http.ResponseWriter, v any) { s.write(w, http.StatusOK, v) }

func (s *Server) write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // a bug: our value cannot be encoded; it must not look like an answer
		s.cfg.Logger.Error("api answer cannot be encoded", "err", err)
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer could not be encoded","reason":"internal"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // if the client is gone, there is no one to report the error to
}

// kinds maps each kind of error to the API's reason and status code.
var kinds = []struct {
	err    error
	reason string
	status int
}{
	{ErrNotFound, "notFound", http.StatusNotFound},
	{ErrInvalid, "invalid", http.StatusBadRequest},
	{ErrConflict, "conflict", http.StatusConflict},
	{ErrForbidden, "forbidden", http.StatusForbidden},
	{ErrTooLarge, "tooLarge", http.StatusRequestEntityTooLarge},
	{ErrBusy, "busy", http.StatusServiceUnavailable},
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			status = k.status
			break
		}
	}
	s.write(w, status, failure(err))
}

// Message returns the text of err for people: without the prefix of its kind, which the
// API sends to programs as Error.Reason.
func Message(err error) string {
	text := err.Error()
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return strings.TrimPrefix(text, k.err.Error()+": ")
		}
	}
	return text
}

// Error returns the message for people.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is this package's error for e.Reason.
func (e *Error) Is(target error) bool {
	for _, k := range kinds {
		if k.reason == e.Reason {
			return k.err == target
		}
	}
	return false
}
