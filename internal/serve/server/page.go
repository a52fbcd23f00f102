package server

import (
	"fmt"
	"net/http"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server/ui"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// page serves the status page. It reads the same data as the API's lists and changes
// nothing.
func (s *Server) page() http.Handler {
	return ui.New(ui.Config{
		Pods:     s.cfg.Volumes.Pods,
		Drivers:  func() []manager.DriverStatus { return publicDrivers(s.drivers()) },
		Problems: s.pageProblems,
		Why:      s.pageWhy,
		Changed:  s.cfg.Volumes.Changed,
		Explain: func(kind, name string) (string, error) {
			e, err := Explain(s.facts().public(), kind, name)
			return e.String(), err
		},
		Node:     s.cfg.Version.Node,
		Stopping: s.stopping,
	})
}

// pageWhy returns a function that says, from the facts known now, why a pod's volume is
// not as wanted. It looks volumes up in a map, since there may be thousands.
func (s *Server) pageWhy() func(state.PodUID, manager.PodVolumeStatus) string {
	f := s.facts().public()
	volumes := make(map[state.VolumeID]manager.VolumeStatus, len(f.Volumes))
	for _, v := range f.Volumes {
		volumes[v.Volume.ID] = v
	}
	return func(uid state.PodUID, v manager.PodVolumeStatus) string {
		of := f
		if of.Volumes = nil; volumes[v.ID].Volume.Spec != nil {
			of.Volumes = []manager.VolumeStatus{volumes[v.ID]}
		}
		return of.Why(uid, f.redactPodVolume(v, volumes[v.ID].Volume.Spec.Value().Builtin))
	}
}

// pageProblems returns what could not be read, and the volumes that outlive their pods
// with the reason.
func (s *Server) pageProblems() []ui.Problem {
	var out []ui.Problem
	for _, p := range s.cfg.Health.Problems() {
		where := p.Source
		if p.File != "" {
			where = fmt.Sprintf("%s:%d", p.File, p.Line)
		}
		if p.Object != "" {
			where += " " + p.Object
		}
		out = append(out, ui.Problem{Where: where, Text: p.Message})
	}
	f := s.facts().public()
	for _, v := range f.Unwanted() {
		if why := f.WhyLeft(v); why != "" {
			out = append(out, ui.Problem{
				Where: "volume " + f.title(v.Volume.Spec.Value()), Text: stepOfVolume(f, v).kind.String(),
				Why: why,
			})
		}
	}
	return out
}
