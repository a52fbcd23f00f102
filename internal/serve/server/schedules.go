package server

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Schedules takes snapshots of claims at set times (internal/provision/schedule).
type Schedules interface {
	// Schedules lists the schedules by namespace and name.
	Schedules(ctx context.Context) ([]ScheduleStatus, error)
	// SetSchedule durably creates or changes a schedule. The note says which snapshots that deletes.
	SetSchedule(ctx context.Context, r ScheduleRequest) (note string, err error)
	// RemoveSchedule removes a schedule; its snapshots stay.
	RemoveSchedule(ctx context.Context, namespace, name string) error
}

// ScheduleRequest asks for snapshots of a claim at set times.
type ScheduleRequest struct {
	Namespace string `json:"-"`
	Name      string `json:"-"`
	// Claim is the claim's name, in the namespace.
	Claim string `json:"claim"`
	// Class is the VolumeSnapshotClass; "" for the driver's default.
	Class string `json:"class,omitempty"`
	// Every is hourly, daily, weekly, or a duration such as 6h.
	Every string `json:"every"`
	// Keep is how many ready snapshots are kept.
	Keep int `json:"keep"`
	// DeleteBeyond permits a lower Keep to delete snapshots. Without it, the request is a conflict that
	// names them.
	DeleteBeyond bool `json:"deleteBeyond,omitempty"`
}

// ScheduleStatus is the state of a schedule of snapshots.
type ScheduleStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Claim     string `json:"claim,omitempty"`
	Class     string `json:"class,omitempty"`
	Every     string `json:"every,omitempty"`
	Keep      int    `json:"keep,omitempty"`
	// Next is when the next snapshot is due; zero while the schedule waits for
	// something else.
	Next time.Time `json:"next,omitzero"`
	// Last is when the last snapshot was due.
	Last time.Time `json:"last,omitzero"`
	// Snapshots are the existing snapshots that the schedule made, the oldest first.
	Snapshots []string `json:"snapshots,omitempty"`
	// Left are the existing snapshots that the schedule made of another volume than the claim
	// has now. The schedule neither counts nor deletes them.
	Left []string `json:"left,omitempty"`
	// Note says which snapshots left the schedule, and why; "" for none.
	Note string `json:"note,omitempty"`
	// Waits says what the schedule waits for; "" for nothing.
	Waits string `json:"waits,omitempty"`
}

// maxSchedule bounds a request for a schedule (bytes).
const maxSchedule = 4 << 10

// scheduleRoutes adds the paths of schedules.
func (s *Server) scheduleRoutes(mux *http.ServeMux) {
	if s.cfg.Schedules == nil {
		return
	}
	mux.HandleFunc("GET /v1/schedules", func(w http.ResponseWriter, r *http.Request) {
		all, err := s.cfg.Schedules.Schedules(r.Context())
		s.reply(w, List[ScheduleStatus]{Items: nonNil(all)}, err)
	})
	mux.HandleFunc("PUT /v1/schedules/{ns}/{name}", s.setSchedule)
	mux.HandleFunc("DELETE /v1/schedules/{ns}/{name}",
		s.deleteObject("schedule", func(r *http.Request, ns, name string) (string, error) {
			err := s.cfg.Schedules.RemoveSchedule(r.Context(), ns, name)
			s.note(r, "delete schedule", ns+"/"+name, "", err)
			return "", err
		}))
}

func (s *Server) setSchedule(w http.ResponseWriter, r *http.Request) {
	ns, name, err := podName(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	var req ScheduleRequest
	if err := decodeBody(r, maxSchedule, &req); err != nil {
		s.fail(w, fmt.Errorf("%w: schedule %s/%s: %w", ErrInvalid, ns, name, err))
		return
	}
	req.Namespace, req.Name = ns, name
	note, err := s.cfg.Schedules.SetSchedule(r.Context(), req)
	s.note(r, "set schedule", ns+"/"+name, fmt.Sprintf("claim %s, %s, keeps %d", req.Claim, req.Every, req.Keep), err)
	s.reply(w, Applied{Kind: "schedule", Namespace: ns, Name: name, Result: "set", Note: note}, err)
}
