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
	// podsPause is the least time between two looks of one watch of pods: what a
	// pod goes through within it is one event.
	podsPause = 10 * time.Millisecond
	// lookShare bounds what a watch takes of one CPU: it looks again at the earliest
	// when lookShare times as long has passed as the last look took, or watchPause.
	lookShare = 4
)

// PodFeed tells which pods changed; [*manager.PodFeed] is one.
type PodFeed interface {
	// Changed returns a channel that has a value, or is closed, when there is
	// something to take.
	Changed() <-chan struct{}
	// Take returns the pods that changed since it was last called, at first all, and
	// those that are no more.
	Take() (changed []manager.PodStatus, gone []state.Pod)
	Close()
}

// listPods serves the list of pods, or with ?watch=true its changes.
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
	if !s.started(st) {
		return
	}
	feed := s.cfg.FollowPods()
	defer feed.Close()
	if err := watchPods(st, feed); err != nil {
		s.cfg.Logger.Debug("watch ended", "path", r.URL.Path, "err", err)
	}
}

// started waits, not long, until there is something to tell of a daemon that just
// started: who watches then would be told of every pod two or three times, at first
// that no client wants it. It reports whether the stream goes on.
func (s *Server) started(st *stream) bool {
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

// changesOf returns the lines of what a feed has to tell, and updates last, which
// has each pod as it was sent.
func changesOf(feed PodFeed, last map[state.PodUID][]byte) (lines []byte, err error) {
	line := func(what string, pod []byte) {
		lines = append(lines, `{"type":"`+what+`","item":`...)
		lines = append(append(lines, pod...), "}\n"...)
	}
	changed, gone := feed.Take()
	for _, p := range changed {
		b, err := json.Marshal(podStatus(p))
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(b, last[p.Pod.UID]) {
			last[p.Pod.UID] = b
			line("set", b)
		}
	}
	for _, p := range gone {
		if was, sent := last[p.UID]; sent {
			delete(last, p.UID)
			line("gone", was)
		}
	}
	return lines, nil
}
