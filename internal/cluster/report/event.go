package report

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/csi-volmgr/csi-volmgr/internal/host/clip"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// Limits of events.
const (
	// maxEvents is how many events may wait to be written; one more drops the oldest.
	maxEvents = 512
	// eventBytes is the longest text of an event, as in the newer events API
	// (events.k8s.io/v1).
	eventBytes = 1024
	// eventName bounds the object's name within an event's name. A time follows it.
	eventName = 230
	// eventSource is the component that reports the events.
	eventSource = "csi-volmgr"
)

// Event is an event about the volumes of a pod or a claim.
type Event struct {
	// About is the pod, claim or volume: kind, namespace, name and uid. As usual, events
	// about an object without a namespace are in "default".
	About   corev1.ObjectReference
	Warning bool
	// Reason is one word ("FailedMount"), Text one sentence.
	Reason, Text string
}

// Event queues an event to be written. It never blocks. A repeated event increments the
// count of the first; too frequent events are dropped (client-go's EventCorrelator with
// the kubelet's limits: a burst of 25 for an object, then one in 5 minutes).
func (r *Reporter) Event(e Event) {
	now := metav1.Now()
	namespace := e.About.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	made := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%.*s.%x", eventName, e.About.Name, now.UnixNano()),
			Namespace: namespace,
		},
		InvolvedObject: e.About, Reason: e.Reason, Type: corev1.EventTypeNormal,
		Message:        clip.Text(e.Text, eventBytes-len("..."), "..."),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              corev1.EventSource{Component: eventSource, Host: r.config.NodeName},
		ReportingController: eventSource, ReportingInstance: r.config.NodeName,
	}
	if e.Warning {
		made.Type = corev1.EventTypeWarning
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == maxEvents {
		r.events = r.events[1:]
	}
	r.events = append(r.events, made)
	r.notify()
}

// runEvents writes the queued events in order.
func (r *Reporter) runEvents(ctx context.Context) {
	correlator := record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{}) // the defaults
	for ctx.Err() == nil {
		r.mu.Lock()
		events, changed := r.events, r.changed
		r.events = nil
		r.mu.Unlock()
		for _, e := range events {
			r.writeEvent(ctx, correlator, e)
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// writeEvent writes one event, and retries while the server is unreachable or too busy.
// It drops an event that the server refuses; the log has the same information.
func (r *Reporter) writeEvent(ctx context.Context, correlator *record.EventCorrelator, e *corev1.Event) {
	result, err := correlator.EventCorrelate(e)
	if err != nil || result.Skip {
		return
	}
	var b outage.Backoff
	for {
		written, err := r.sendEvent(ctx, result)
		if err == nil {
			correlator.UpdateState(written)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && ofItself(err) {
			r.logger.Warn("event dropped", "event", result.Event.Reason, "err", err)
			err = nil // the server accepts other events
		}
		if err == nil || !mayPass(err) {
			r.problem("events", err, 0)
			return
		}
		wait := b.Next(err)
		r.problem("events", err, wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// sendEvent creates an event, or increments the count of an existing one.
func (r *Reporter) sendEvent(ctx context.Context, result *record.EventCorrelateResult) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	e := result.Event
	events := r.config.Core.Events(e.Namespace)
	if e.Count > 1 {
		written, err := events.Patch(ctx, e.Name, types.StrategicMergePatchType, result.Patch)
		if err == nil {
			return written, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("write event %s: %w", e.Reason, err)
		}
		e.ResourceVersion = "" // the server has expired it
	}
	written, err := events.Create(ctx, e, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// An earlier request arrived but its answer was lost: names are unique by nanosecond.
		return e, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write event %s: %w", e.Reason, err)
	}
	return written, nil
}

// ofItself reports whether the server refuses only this event, and not all events of this
// node: its namespace is being deleted or gone, or the event is invalid. Such an error is
// not recorded as a problem, which would last until the next event.
func ofItself(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsConflict(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// mayPass reports whether a retry may succeed: the request did not arrive, or the server
// failed or is overloaded.
func mayPass(err error) bool {
	var status apierrors.APIStatus // not an error itself
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError ||
		status.Status().Code == http.StatusTooManyRequests
}
