package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// stream is an answer of JSON lines, each flushed at once.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	done <-chan struct{} // closed when the client is gone
	stop <-chan struct{} // closed when the server stops
	free func()
	// patience is how long the client may leave one write unread.
	patience time.Duration
}

// open makes the answer to r a stream. If too many are open, it answers with the error
// and reports false.
func (s *Server) open(w http.ResponseWriter, r *http.Request) (*stream, bool) {
	p := peerOf(r)
	free, err := s.streams.take(p)
	if err != nil {
		s.fail(w, err)
		return nil, false
	}
	st := &stream{
		w: w, rc: http.NewResponseController(w), done: r.Context().Done(), stop: s.stopping,
		free: free, patience: writeTimeout,
	}
	_ = st.rc.SetReadDeadline(time.Time{}) // else the server would end the stream of a client that sends nothing
	w.Header().Set("Content-Type", "application/jsonl")
	return st, true
}

func (st *stream) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return st.write(append(b, '\n'))
}

// write sends complete lines at once.
func (st *stream) write(lines []byte) error {
	_ = st.rc.SetWriteDeadline(time.Now().Add(st.patience))
	if _, err := st.w.Write(lines); err != nil {
		return err
	}
	return st.rc.Flush()
}

// errStopping cancels what works for a stream because the server stops.
var errStopping = errors.New("the daemon stops")

// untilStop returns a context that also ends when the server stops. The caller calls end.
func (st *stream) untilStop(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-st.stop:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// sleep waits for changed, timeout, the end of the client or the stop of the server. It
// reports whether the stream continues.
func (st *stream) sleep(changed <-chan struct{}, timeout <-chan time.Time) bool {
	select {
	case <-changed:
		return true
	case <-timeout:
		return true
	case <-st.done:
		return false
	case <-st.stop:
		return false
	}
}

// serveList serves a list, or its changes if the query has watch=true.
func serveList[T any](s *Server, changed func() <-chan struct{}, list func(peer) []T,
	key func(T) string,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := peerOf(r)
		list := func() []T { return list(p) }
		if r.URL.Query().Get("watch") != "true" {
			s.answer(w, List[T]{Items: nonNil(list())})
			return
		}
		st, ok := s.open(w, r)
		if !ok {
			return
		}
		defer st.free()
		if err := watch(st, changed, list, key); err != nil {
			s.cfg.Logger.Debug("watch ended", "path", r.URL.Path, "err", err)
		}
	}
}

func watch[T any](st *stream, changed func() <-chan struct{}, list func() []T, key func(T) string) error {
	last := map[string][]byte{}
	items := map[string]T{}
	for first := true; ; first = false {
		next := changed() // before the list is read, so that no change is missed
		if err := sendChanges(st, list(), key, last, items); err != nil {
			return err
		}
		if first {
			if err := st.send(Event[T]{Type: "listed"}); err != nil {
				return err
			}
		}
		if !st.sleep(next, nil) {
			return nil
		}
		pause := time.NewTimer(watchPause)
		if !st.sleep(nil, pause.C) {
			pause.Stop()
			return nil
		}
	}
}

// sendChanges sends the differences between last and now, and updates last and items.
func sendChanges[T any](st *stream, now []T, key func(T) string, last map[string][]byte, items map[string]T) error {
	seen := make(map[string]bool, len(now))
	for _, item := range now {
		k := key(item)
		seen[k] = true
		b, err := json.Marshal(item)
		if err != nil {
			return err
		}
		if bytes.Equal(b, last[k]) {
			continue
		}
		last[k], items[k] = b, item
		if err := st.send(Event[T]{Type: "set", Item: item}); err != nil {
			return err
		}
	}
	var gone []string
	for k := range last {
		if !seen[k] {
			gone = append(gone, k)
		}
	}
	slices.Sort(gone)
	for _, k := range gone {
		item := items[k]
		delete(last, k)
		delete(items, k)
		if err := st.send(Event[T]{Type: "gone", Item: item}); err != nil {
			return err
		}
	}
	return nil
}

// wait streams a pod's progress until it reaches the requested goal or the timeout
// ends.
func (s *Server) wait(w http.ResponseWriter, r *http.Request) {
	ns, name, err := podName(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	q := r.URL.Query()
	goal := q.Get("for")
	if goal != "mounted" && goal != "unmounted" && (goal != goalVerified || s.cfg.Verify == nil) {
		s.fail(w, fmt.Errorf("%w: for=%q: must be mounted, verified or unmounted", ErrInvalid, goal))
		return
	}
	timeout, err := time.ParseDuration(q.Get("timeout"))
	if err != nil || timeout < 0 || timeout > MaxWait {
		s.fail(w, fmt.Errorf("%w: timeout=%q: must be a duration of 0s to %s", ErrInvalid, q.Get("timeout"), MaxWait))
		return
	}
	st, ok := s.open(w, r)
	if !ok {
		return
	}
	defer st.free()
	settled, ok := s.settle(r.Context(), st, goal, timeout)
	if !ok {
		return
	}
	if err := s.progress(st, waiter{ns: ns, name: name, goal: goal, settled: settled, verify: s.verifier(r.Context(), st)},
		timeout); err != nil {
		s.cfg.Logger.Debug("wait ended", "pod", ns+"/"+name, "err", err)
	}
}

// settle waits, for the goal unmounted, until the manager shows the journal's records: before
// that, a pod without volumes may have some. settled is false if the timeout ends first, and
// at least startPatience. ok is false if the client goes or the server stops.
func (s *Server) settle(ctx context.Context, st *stream, goal string, timeout time.Duration) (settled, ok bool) {
	if goal != "unmounted" || s.cfg.Settle == nil {
		return true, true
	}
	ctx, end := st.untilStop(ctx)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, max(timeout, startPatience))
	defer cancel()
	err := s.cfg.Settle(ctx)
	return err == nil, err == nil || errors.Is(ctx.Err(), context.DeadlineExceeded)
}

func (s *Server) progress(st *stream, wt waiter, timeout time.Duration) error {
	end := time.NewTimer(timeout)
	defer end.Stop()
	defer s.pods.join(wt.ns, wt.name)()
	var last []byte
	for over := timeout == 0 || !wt.settled; ; {
		anything := s.cfg.Volumes.Changed() // before the pods are read, so that no change is missed
		pods, next := s.pods.named(wt.ns, wt.name)
		p := wt.look(pods)
		p.NotReady = s.cfg.Health.NotReady()
		if wt.goal == goalVerified && p.Done {
			p.Unverified = wt.verify(p.Pod.Pod.UID)
			p.Done = p.Unverified == ""
		}
		p.TimedOut = over && !p.Done
		b, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if !bytes.Equal(b, last) {
			last = b
			if err := st.send(p); err != nil {
				return err
			}
		}
		if p.Done || p.TimedOut {
			return nil
		}
		pause := time.Duration(0)
		switch {
		case p.Unverified != "":
			pause = verifyPause
		case len(p.NotReady) > 0:
			pause = watchPause
		default:
			anything = nil // only a change of the pod matters
		}
		select {
		case <-end.C:
			over = true
			continue
		case <-next:
		case <-anything:
		case <-st.done:
			return nil
		case <-st.stop:
			return nil
		}
		if pause > 0 && !st.sleep(nil, time.After(pause)) {
			return nil
		}
	}
}

// waiter decides whether a pod has reached the goal of a wait request.
type waiter struct {
	ns, name, goal string
	// settled: the manager shows what the journal has.
	settled bool
	verify  func(state.PodUID) string
	// uids are the pods of that name at the first look. A wait for unmounted ends when
	// these are gone, even if a new pod has the name by then.
	uids map[state.PodUID]bool
}

func (wt *waiter) look(pods []manager.PodStatus) Progress {
	if wt.goal != "unmounted" {
		p, ok := podNamed(pods, wt.ns, wt.name)
		return Progress{Pod: podStatus(wt.named(p, ok)), Known: ok, Done: ok && p.Listed && p.Ready}
	}
	first := wt.uids == nil
	if first {
		wt.uids = map[state.PodUID]bool{}
	}
	done, known := wt.settled, false
	left := manager.PodStatus{}
	for _, p := range pods {
		if p.Pod.Namespace != wt.ns || p.Pod.Name != wt.name {
			continue
		}
		if first {
			wt.uids[p.Pod.UID] = true
		}
		if !wt.uids[p.Pod.UID] {
			continue
		}
		clear := !slices.ContainsFunc(p.Volumes, func(v manager.PodVolumeStatus) bool { return v.Phase != state.Absent })
		if !known || !clear {
			left = p
		}
		known = true
		done = done && clear
	}
	return Progress{Pod: podStatus(wt.named(left, known)), Known: known, Done: done}
}

func (wt *waiter) named(p manager.PodStatus, known bool) manager.PodStatus {
	if !known {
		p.Pod.Namespace, p.Pod.Name = wt.ns, wt.name
	}
	return p
}
