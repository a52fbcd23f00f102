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

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

const (
	// watchTime is how long the server is asked to keep a watch; a random extension of up to the
	// same length is added. A watch that outlives that by watchGrace is considered dead, because a
	// connection can die without either side noticing.
	watchTime  = 5 * time.Minute
	watchGrace = 30 * time.Second
	// steady is how long a watch must last to count as working. An earlier end is a failure, so
	// that a server that ends every watch at once is not asked without pauses.
	steady = 5 * time.Second
)

// stream lists objects and watches from there, forever.
type stream struct {
	list     listFunc
	watch    watchFunc
	selector string
	logger   *slog.Logger
	// replace receives a complete list, and event each later change. event reports whether there is
	// nothing more to watch.
	replace func([]runtime.Object)
	event   func(watch.EventType, runtime.Object) (done bool)
	// verify returns an error if the objects of a list of this version are not to be believed; nil means
	// that they are.
	verify func(ctx context.Context, objects []runtime.Object, version string) error
	// complete reports, after a list, whether there is nothing to watch; nil means no.
	complete func() bool
	// report receives the error of a failed attempt and the pause before the next one, and nil when
	// the server answers again. It may end ctx to stop the stream.
	report func(err error, wait time.Duration)

	backoff outage.Backoff
	version string // of the last list or event; "" requests a list
	seen    string // the last known version, which stays when version is cleared
	// restored is called when the server's versions begin again, before replace; nil means that nothing else has to
	// know.
	restored func()
	// behind is since when all lists have been older than what was seen, and first the version of the first of them.
	behind time.Time
	first  string
}

// restoredAfter is how long all lists must be older than what was seen, while their versions go on, until the API
// server's data counts as restored from a backup. An instance that lags behind stands still or catches up.
const restoredAfter = 5 * time.Minute

// errStale means that a watch outlived its limit.
var errStale = fmt.Errorf("the watch outlived its limit, so its connection is considered dead: %w",
	context.DeadlineExceeded)

// run lists and watches until ctx ends or there is nothing more to watch.
func (s *stream) run(ctx context.Context) {
	for {
		done, err := s.listAndWatch(ctx)
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

// sleep waits until d has passed or ctx ends.
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

// isGone reports whether the server no longer knows the version to continue from.
func isGone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// listAndWatch lists if necessary, and watches until the watch ends. A regular end is not an error.
func (s *stream) listAndWatch(ctx context.Context) (done bool, err error) {
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
		s.version = "" // normal after an outage, and cured by a list without a pause
		return false, nil
	case lasted < steady && !done && err == nil:
		err = fmt.Errorf("watch: the API server ended it after %s", lasted.Round(time.Millisecond))
	}
	return done, err
}

// relist lists the objects and passes them to replace.
func (s *stream) relist(ctx context.Context) error {
	// No resource version: that requests a consistent read and not one from a cache.
	list, err := s.list(ctx, metav1.ListOptions{FieldSelector: s.selector})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if m.GetContinue() != "" {
		return errors.New("list: the answer is incomplete, although the request set no limit")
	}
	isOlder := older(m.GetResourceVersion(), s.seen)
	if isOlder && !s.goesOn(m.GetResourceVersion(), time.Now()) {
		return fmt.Errorf("list: %w", &outage.BehindError{Has: m.GetResourceVersion(), Seen: s.seen})
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if s.verify != nil {
		if err := s.verify(ctx, objects, m.GetResourceVersion()); err != nil {
			return err
		}
	}
	if isOlder {
		s.logger.Warn("the API server's data was restored from an earlier copy, which is followed from here on",
			"version", m.GetResourceVersion(), "seen", s.seen)
		if s.restored != nil {
			s.restored()
		}
	}
	s.replace(objects)
	s.setVersion(m.GetResourceVersion())
	return nil
}

// setVersion sets the last known version.
func (s *stream) setVersion(version string) {
	s.version, s.seen, s.behind = version, version, time.Time{}
}

// goesOn reports whether lists have been older than what was seen for long, and this one is newer than the first of
// them: versions have no order across a restore.
func (s *stream) goesOn(version string, now time.Time) bool {
	if s.behind.IsZero() || older(version, s.first) {
		s.behind, s.first = now, version
	}
	return now.Sub(s.behind) >= restoredAfter && older(s.first, version)
}

// older reports whether version is before seen; an empty seen is before every version. Versions
// that are not numbers, which no Kubernetes API server has, are assumed to arrive in order.
func older(version, seen string) bool {
	if seen == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, seen)
	return err == nil && order < 0
}

// follow handles events until the watch ends.
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
			s.setVersion(m.GetResourceVersion())
			if done {
				return true, nil
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
