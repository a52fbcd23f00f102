package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Operator carries out operators' requests (docs/adr/0014-what-an-operator-may-do.md).
// It writes to the audit log before it changes anything.
type Operator interface {
	// Who finds the holders of a volume or a path.
	Who(ctx context.Context, q WhoQuery) (holders.Report, error)
	// Leftovers lists the files and mounts that no record explains. If remove is set,
	// it also removes those that are safe to remove.
	Leftovers(ctx context.Context, by audit.By, how GC) ([]leftover.Item, error)
	// Forget drops a record. The note says what may be left.
	Forget(ctx context.Context, by audit.By, f Forget) (note string, err error)
	// Retry ends the pauses of a volume or a snapshot, or has a volume unmounted by a
	// given step.
	Retry(ctx context.Context, by audit.By, r Retry) error
	// AcceptRecovery ends the restrictions that apply because the journal may have lost
	// records, and returns the mounts without a record.
	AcceptRecovery(ctx context.Context, by audit.By, reason string) ([]state.Place, error)
}

// Drainer empties the node of volumes.
type Drainer interface {
	SetDrain(ctx context.Context, by audit.By, d Drain) error
	// EndEmptying ends a drain of mode DrainEmpty, and no other. A drain of mode DrainHold that the node
	// had before holds again.
	EndEmptying(ctx context.Context, by audit.By) error
	// Draining returns the last drain set; the zero value if none is.
	Draining() Drain
}

// Registrar registers drivers that do not register themselves.
type Registrar interface {
	// RegisterDriver registers the driver at a socket's path, until UnregisterDriver.
	// It returns once the driver is registered.
	RegisterDriver(ctx context.Context, by audit.By, r Registration) (Registered, error)
	UnregisterDriver(ctx context.Context, by audit.By, name state.DriverName) error
}

// Registration says where a driver is.
type Registration struct {
	// Endpoint is the path of its socket.
	Endpoint string
	// Controller is where its Controller service is; zero: at Endpoint.
	Controller controller.Endpoint
}

// Registered is a driver that has been registered.
type Registered struct {
	Name state.DriverName
	// Note says what does not work yet; "" if nothing is known.
	Note string
}

// WhoQuery names a volume or, if Volume is "", a path.
type WhoQuery struct {
	Volume state.VolumeID
	Path   string
}

// Forget says which record to drop, and why.
type Forget struct {
	Volume state.VolumeID
	// Kind is "claim" or "snapshot" if the record is that of an object, and not of a volume on this node.
	Kind, Namespace, Name string
	// Gone says that the object's driver will not come back.
	Gone bool
	// Reason is the operator's reason, for the audit log.
	Reason string
	// Mounted drops the record even if the kernel shows mounts of the volume or the
	// daemon cannot tell.
	Mounted bool
}

// Retry says which volume or snapshot must not wait any longer.
type Retry struct {
	Volume state.VolumeID
	// Snapshot is the "namespace/name" of a snapshot; then Volume is "" and Step is
	// state.UnmountNormal.
	Snapshot string
	// Group: Snapshot names a group snapshot.
	Group bool
	// Step is how to make the failing unmount, once; state.UnmountNormal changes
	// nothing about it.
	Step state.UnmountStep
	// Reason is the operator's reason, for the audit log; required with a Step.
	Reason string
}

// DrainMode is the extent to which a node is drained.
type DrainMode string

// The drain modes; "" means that the node is not drained.
const (
	// DrainHold prevents new mounts.
	DrainHold DrainMode = "hold"
	// DrainEmpty unmounts everything: the operator states that no container runs here.
	DrainEmpty DrainMode = "empty"
)

// Drain is the drain of the node: its mode, reason and start.
type Drain struct {
	Mode   DrainMode `json:"mode,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// operatorRoutes adds the paths of operators' requests.
func (s *Server) operatorRoutes(mux *http.ServeMux) {
	s.snapshotRoutes(mux)
	s.scheduleRoutes(mux)
	if s.cfg.Operator != nil {
		mux.HandleFunc("GET /v1/who", s.who)
		mux.HandleFunc("GET /v1/leftovers", s.leftovers(GCList))
		mux.HandleFunc("POST /v1/gc", s.leftovers(GCSafe))
		mux.HandleFunc("GET /v1/storage", s.storage)
		mux.HandleFunc("POST /v1/persistentvolumes/{name}/release", s.releaseVolume)
		mux.HandleFunc("PUT /v1/claims/{ns}/{name}/reclaim-policy", s.setReclaim)
		mux.HandleFunc("POST /v1/forget/{id...}", s.forget)
		mux.HandleFunc("POST /v1/claims/{ns}/{name}/forget", s.forgetObject("claim"))
		mux.HandleFunc("POST /v1/snapshots/{ns}/{name}/forget", s.forgetObject("snapshot"))
		mux.HandleFunc("POST /v1/retry/{id...}", s.retry)
		mux.HandleFunc("POST /v1/recovery/accept", s.acceptRecovery)
	}
	if s.cfg.Registrar != nil {
		mux.HandleFunc("POST /v1/drivers", s.registerDriver)
		mux.HandleFunc("DELETE /v1/drivers/{name}", s.unregisterDriver)
	}
	if s.cfg.Drainer != nil {
		mux.HandleFunc("GET /v1/drain",
			func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.cfg.Drainer.Draining()) })
		mux.HandleFunc("POST /v1/drain", s.drain)
		mux.HandleFunc("DELETE /v1/drain", s.undrain)
	}
}

// requester returns the process that sent the request, with details from /proc.
func requester(r *http.Request) audit.By {
	if p := peerOf(r); p.named != nil {
		return p.named()
	}
	return audit.By{}
}

func (s *Server) who(w http.ResponseWriter, r *http.Request) {
	q := WhoQuery{Path: r.URL.Query().Get("path")}
	name := r.URL.Query().Get("volume")
	if (name == "") == (q.Path == "") {
		s.fail(w, fmt.Errorf("%w: expected either volume or path", ErrInvalid))
		return
	}
	if p := peerOf(r); q.Path != "" && !p.owner() {
		s.fail(w, fmt.Errorf("%w: only root may ask who has files open below a path; user %d may ask about a volume",
			ErrForbidden, p.uid))
		return
	}
	if name != "" {
		v, err := volumeNamed(s.cfg.Volumes.Volumes(), name)
		if err != nil {
			s.fail(w, err)
			return
		}
		q.Volume = v.Volume.ID
	}
	report, err := s.cfg.Operator.Who(r.Context(), q)
	if err != nil {
		s.fail(w, err)
		return
	}
	if !peerOf(r).owner() {
		report.Processes = hideFiles(report.Processes)
	}
	report.Mounts, report.Processes = nonNil(report.Mounts), nonNil(report.Processes)
	report.Namespaces, report.Devices = nonNil(report.Namespaces), nonNil(report.Devices)
	s.answer(w, report)
}

// GC is what becomes of leftovers.
type GC int

const (
	// GCList lists them.
	GCList GC = iota
	// GCSafe removes those that are safe to remove.
	GCSafe
	// GCLost also ends uses that engines which run have lost.
	GCLost
)

func (s *Server) leftovers(how GC) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		how := how
		if how == GCSafe && r.URL.Query().Get("uses") == "lost" {
			how = GCLost
		}
		items, err := s.cfg.Operator.Leftovers(r.Context(), requester(r), how)
		s.reply(w, List[leftover.Item]{Items: nonNil(items)}, err)
	}
}

func (s *Server) forget(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := Forget{Reason: strings.TrimSpace(q.Get("reason")), Mounted: q.Get("mounted") == "true"}
	if f.Reason == "" {
		s.fail(w, fmt.Errorf("%w: reason: found none, want why the record may be dropped", ErrInvalid))
		return
	}
	v, err := volumeNamed(s.cfg.Volumes.Volumes(), r.PathValue("id"))
	if err == nil {
		f.Volume = v.Volume.ID
		_, err = s.cfg.Operator.Forget(r.Context(), requester(r), f)
	}
	s.reply(w, Applied{Kind: "volume", Name: string(f.Volume), Result: "forgotten"}, err)
}

// forgetObject drops the record of a claim's volume or of a snapshot.
func (s *Server) forgetObject(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		f := Forget{Kind: kind, Reason: strings.TrimSpace(q.Get("reason")), Gone: q.Get("gone") == "true"}
		var err error
		if f.Namespace, f.Name, err = podName(r); err == nil && f.Reason == "" {
			err = fmt.Errorf("%w: reason: found none, want why the record may be dropped", ErrInvalid)
		}
		note := ""
		if err == nil {
			note, err = s.cfg.Operator.Forget(r.Context(), requester(r), f)
		}
		s.reply(w, Applied{Kind: kind, Namespace: f.Namespace, Name: f.Name, Result: "forgotten", Note: note}, err)
	}
}

func (s *Server) retry(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	again := Retry{Step: state.UnmountStep(q.Get("step")), Reason: strings.TrimSpace(q.Get("reason"))}
	switch {
	case again.Step != state.UnmountNormal && again.Step != state.UnmountForce && again.Step != state.UnmountLazy:
		s.fail(w, fmt.Errorf("%w: step: found %q, want force or lazy", ErrInvalid, again.Step))
		return
	case again.Step != state.UnmountNormal && again.Reason == "":
		s.fail(w, fmt.Errorf("%w: reason: found none, want why what was not written back may be lost", ErrInvalid))
		return
	}
	v, err := volumeNamed(s.cfg.Volumes.Volumes(), r.PathValue("id"))
	if err == nil {
		again.Volume = v.Volume.ID
		err = s.cfg.Operator.Retry(r.Context(), requester(r), again)
	}
	s.reply(w, Applied{Kind: "volume", Name: string(v.Volume.ID), Result: "retried"}, err)
}

func (s *Server) acceptRecovery(w http.ResponseWriter, r *http.Request) {
	reason := strings.TrimSpace(r.URL.Query().Get("reason"))
	if reason == "" {
		s.fail(w, fmt.Errorf("%w: reason: found none, want why no pod uses what is mounted without a record", ErrInvalid))
		return
	}
	places, err := s.cfg.Operator.AcceptRecovery(r.Context(), requester(r), reason)
	s.reply(w, List[Place]{Items: nonNil(each(places, placeOf))}, err)
}

// drain sets the drain.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	d := Drain{
		Mode: DrainMode(r.URL.Query().Get("mode")), Reason: strings.TrimSpace(r.URL.Query().Get("reason")),
		Since: s.cfg.Now(),
	}
	if d.Mode != DrainHold && d.Mode != DrainEmpty {
		s.fail(w, fmt.Errorf("%w: mode: found %q, want hold or empty", ErrInvalid, d.Mode))
		return
	}
	err := s.cfg.Drainer.SetDrain(r.Context(), requester(r), d)
	s.reply(w, s.cfg.Drainer.Draining(), err)
}

// undrain ends the drain, or only one of mode DrainEmpty.
func (s *Server) undrain(w http.ResponseWriter, r *http.Request) {
	var err error
	switch mode := DrainMode(r.URL.Query().Get("mode")); mode {
	case "":
		err = s.cfg.Drainer.SetDrain(r.Context(), requester(r), Drain{})
	case DrainEmpty:
		err = s.cfg.Drainer.EndEmptying(r.Context(), requester(r))
	default:
		err = fmt.Errorf("%w: mode: found %q, want none or empty", ErrInvalid, mode)
	}
	s.reply(w, s.cfg.Drainer.Draining(), err)
}

func (s *Server) registerDriver(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	done, err := s.cfg.Registrar.RegisterDriver(r.Context(), requester(r), Registration{
		Endpoint: q.Get("endpoint"), Controller: controller.Endpoint{
			Address: q.Get("controller"), CA: q.Get("controllerCA"), Cert: q.Get("controllerCert"), Key: q.Get("controllerKey"),
		},
	})
	s.reply(w, Applied{Kind: "driver", Name: string(done.Name), Result: "registered", Warning: done.Note}, err)
}

func (s *Server) unregisterDriver(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	err := s.cfg.Registrar.UnregisterDriver(r.Context(), requester(r), state.DriverName(name))
	s.reply(w, Applied{Kind: "driver", Name: name, Result: "unregistered"}, err)
}
