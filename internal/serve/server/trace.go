package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Trace reads the last calls that the manager made.
type Trace interface {
	// Calls returns the kept calls of some volumes, by start time.
	Calls(ids ...state.VolumeID) []manager.EndedCall
	// AllCalls returns the kept calls of all volumes, by start time.
	AllCalls() []manager.EndedCall
	// CallsNamed returns the volumes with a name that have kept calls, including
	// volumes that are gone. CallsOfPod returns those of a pod ("namespace/name").
	CallsNamed(name string) []state.VolumeID
	CallsOfPod(name string) []state.VolumeID
}

// trace answers with the last calls of a volume, or of all volumes of a pod.
func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	ids, err := s.traced(r.PathValue("kind"), r.PathValue("name"))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, List[EndedCall]{Items: nonNil(each(s.cfg.Trace.Calls(ids...), endedCall))})
}

func (s *Server) traced(kind, name string) ([]state.VolumeID, error) {
	switch kind {
	case "pod":
		return s.tracedPod(name)
	case "volume":
		if v, err := volumeNamed(s.cfg.Volumes.Volumes(), name); err == nil {
			return []state.VolumeID{v.Volume.ID}, nil
		}
		return append(s.cfg.Trace.CallsNamed(name), state.VolumeID(name)), nil // it may be gone
	default:
		return nil, fmt.Errorf("%w: trace %q: must be pod or volume", ErrInvalid, kind)
	}
}

func (s *Server) tracedPod(name string) ([]state.VolumeID, error) {
	ns, bare, ok := strings.Cut(name, "/")
	if !ok {
		return nil, fmt.Errorf("%w: pod %q: must be namespace/name", ErrInvalid, name)
	}
	p, ok := podNamed(s.cfg.Volumes.Pods(), ns, bare)
	if gone := s.cfg.Trace.CallsOfPod(name); !ok && len(gone) > 0 {
		return gone, nil
	}
	if !ok {
		return nil, fmt.Errorf("%w: pod %s is not known here, and no calls for it are kept", ErrNotFound, name)
	}
	var ids []state.VolumeID
	for _, v := range p.Volumes {
		if v.ID != "" {
			ids = append(ids, v.ID)
		}
	}
	return ids, nil
}
