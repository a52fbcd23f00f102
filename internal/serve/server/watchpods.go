package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// podsPause is the minimum time between two reads of the feed for one watch of
	// pods; a pod's changes within that time become one event.
	podsPause = 10 * time.Millisecond
	// lookShare bounds the share of a CPU that a watch uses: it waits lookShare times
	// as long as the last read took, at most watchPause, before it reads again.
	lookShare = 4
)

// PodFeed reports which pods changed; [*manager.PodFeed] is one.
type PodFeed interface {
	// Changed returns a channel that has a value or is closed when Take has something
	// to return.
	Changed() <-chan struct{}
	// Take returns the pods that changed since its last call, at first all pods, and
	// those that are gone.
	Take() (changed []manager.PodStatus, gone []state.Pod)
	Close()
}

// listPods serves the list of pods, or its changes if the query has watch=true.
func (s *Server) listPods(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "true" {
		s.answer(w, List[PodStatus]{Items: nonNil(each(s.cfg.Volumes.Pods(), podStatus))})
		return
	}
	st, ok := s.open(w, r)
	if !ok {
		return
	}
	defer st.free()
	if !s.waitStarted(st) {
		return
	}
	feed := s.cfg.FollowPods()
	defer feed.Close()
	if err := watchPods(st, feed); err != nil {
		s.cfg.Logger.Debug("watch ended", "path", r.URL.Path, "err", err)
	}
}

// waitStarted waits briefly until the manager of a daemon that just started shows the
// sources' pods. Without that, a watch would get every pod two or three times, first as
// unwanted. It reports whether the stream continues.
func (s *Server) waitStarted(st *stream) bool {
	if s.cfg.Started == nil {
		return true
	}
	patience := time.NewTimer(time.Until(s.made.Add(startPatience)))
	defer patience.Stop()
	return st.sleep(s.cfg.Started, patience.C)
}

func watchPods(st *stream, feed PodFeed) error {
	last := map[state.PodUID][]byte{}
	for first := true; ; first = false {
		began := time.Now()
		lines, err := changesOf(feed, last)
		if err != nil {
			return err
		}
		took := time.Since(began)
		if first {
			lines = append(lines, `{"type":"listed"}`+"\n"...)
		}
		if len(lines) > 0 {
			if err := st.write(lines); err != nil {
				return err
			}
		}
		pause := time.NewTimer(min(max(podsPause, lookShare*took), watchPause))
		if !st.sleep(nil, pause.C) {
			pause.Stop()
			return nil
		}
		if !st.sleep(feed.Changed(), nil) {
			return nil
		}
	}
}

// changesOf returns the lines for the feed's changes, and updates last, which holds
// each pod as it was last sent.
func changesOf(feed PodFeed, last map[state.PodUID][]byte) ([]byte, error) {
	set, goes, end := []byte(`{"type":"set","item":`), []byte(`{"type":"gone","item":`), []byte("}\n")
	changed, gone := feed.Take()
	parts := make([][]byte, 0, 3*(len(changed)+len(gone)))
	for _, p := range changed {
		b, err := json.Marshal(podStatus(p))
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(b, last[p.Pod.UID]) {
			last[p.Pod.UID] = b
			parts = append(parts, set, b, end)
		}
	}
	for _, p := range gone {
		if was, sent := last[p.UID]; sent {
			delete(last, p.UID)
			parts = append(parts, goes, was, end)
		}
	}
	return bytes.Join(parts, nil), nil
}
