package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
)

const (
	// watchTime is how long the server is asked to keep a watch, longer by up to
	// as much again by chance. A watch that is still there watchGrace later is
	// taken for dead: a connection can die without either side being told.
	watchTime  = 5 * time.Minute
	watchGrace = 30 * time.Second
	// steady is how long a watch has to last to count as one: one that ends
	// earlier is a failure, so that a server that ends each at once is not asked
	// without a pause.
	steady = 5 * time.Second
)

// stream is a list and the watch that goes on from it, for ever.
type stream struct {
	list     listFunc
	watch    watchFunc
	selector string
	logger   *slog.Logger
	// replace is given a whole list; event one change after it, and says whether
	// nothing more is to be watched.
	replace func([]runtime.Object)
	event   func(watch.EventType, runtime.Object) (done bool)
	// complete says, after a list, whether nothing more is to be watched; nil is no.
	complete func() bool
	// report hears why nothing is heard of the server, and for how long it is not
	// asked; nil when it is heard of again. For errors that it says it has dealt
	// with by ending ctx it does nothing else.
	report func(err error, wait time.Duration)

	backoff outage.Backoff
	version string // of the last list or event; "" asks for a list
	seen    string // as version, but it stays when that is forgotten
}

// errStale is a watch on which nothing ended it in time.
var errStale = fmt.Errorf("the watch did not end when it should have: its connection is taken for dead: %w",
	context.DeadlineExceeded)

// run lists and watches until ctx ends or nothing more is to be watched.
func (s *stream) run(ctx context.Context) {
	for {
		done, err := s.once(ctx)
		if done || ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		if isGone(err) {
			s.version = ""
		}
		wait := s.backoff.Next(err)
		s.report(err, wait)
		if sleep(ctx, wait) != nil {
			return
		}
	}
}

// sleep waits until d has passed or ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isGone reports whether the server no longer knows the version to go on from.
func isGone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// once lists where that is needed, and watches until the watch ends. An end in
// good order is no error.
func (s *stream) once(ctx context.Context) (done bool, err error) {
	relisted := s.version == ""
	if relisted {
		if err := s.relist(ctx); err != nil {
			return false, err
		}
		if s.complete != nil && s.complete() {
			s.report(nil, 0)
			return true, nil
		}
	}
	life := outage.Jitter(watchTime, 1)
	seconds := int64(life / time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, life+watchGrace, errStale)
	defer cancel()
	began := time.Now()
	unanswered := time.AfterFunc(answerTime, cancel)
	w, err := s.watch(ctx, metav1.ListOptions{
		FieldSelector: s.selector, ResourceVersion: s.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if isGone(err) && !relisted {
		s.version = ""
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	if !unanswered.Stop() {
		return false, fmt.Errorf("watch: %w", context.DeadlineExceeded)
	}
	s.report(nil, 0)
	done, err = s.follow(ctx, w)
	lasted := time.Since(began)
	if lasted >= steady {
		s.backoff = outage.Backoff{}
	}
	switch {
	case isGone(err) && (!relisted || lasted >= steady):
		s.version = "" // as after every outage: what it asks for is a list, not a pause
		return false, nil
	case lasted < steady && !done && err == nil:
		err = fmt.Errorf("watch: the API server ended it after %s", lasted.Round(time.Millisecond))
	}
	return done, err
}

// relist gives replace what there is.
func (s *stream) relist(ctx context.Context) error {
	// No resource version: a consistent read, not what a cache has.
	list, err := s.list(ctx, metav1.ListOptions{FieldSelector: s.selector})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if m.GetContinue() != "" {
		return errors.New("list: the answer is a part of the list only, although no part was asked for")
	}
	if older(m.GetResourceVersion(), s.seen) {
		return fmt.Errorf("list: %w", &outage.BehindError{Has: m.GetResourceVersion(), Seen: s.seen})
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	s.replace(objects)
	s.at(m.GetResourceVersion())
	return nil
}

// at takes note of the version that is known now.
func (s *stream) at(version string) { s.version, s.seen = version, version }

// older reports whether version is before seen; "" is none. Versions
// that are no numbers, which no API server of Kubernetes has, are taken to come in order.
func older(version, seen string) bool {
	if seen == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, seen)
	return err == nil && order < 0
}

// follow takes events until the watch ends.
func (s *stream) follow(ctx context.Context, w watch.Interface) (done bool, err error) {
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return false, context.Cause(ctx)
			}
			if e.Type == watch.Error {
				return false, fmt.Errorf("watch: %w", apierrors.FromObject(e.Object))
			}
			m, err := meta.Accessor(e.Object)
			if err != nil {
				return false, fmt.Errorf("watch: event %s: %w", e.Type, err)
			}
			if e.Type != watch.Bookmark {
				done = s.event(e.Type, e.Object)
			}
			s.at(m.GetResourceVersion())
			if done {
				return true, nil
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
