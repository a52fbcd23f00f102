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

	"github.com/csi-volmgr/csi-volmgr/pkg/clip"
	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
)

// Limits of events.
const (
	// maxEvents is how many may wait to be written; the oldest is dropped then.
	maxEvents = 512
	// eventBytes is how long a text may be: what kubectl's users and the API's
	// newer form of events (events.k8s.io/v1) know.
	eventBytes = 1024
	// eventName bounds the part of an event's name that is its object's, which
	// is followed by a time.
	eventName = 230
	// eventSource is who says so.
	eventSource = "csi-volmgr"
)

// Event is something that happened to the volumes of a pod or a claim, for people.
type Event struct {
	// About is the pod, the claim or the volume: kind, namespace, name and uid.
	// What has no namespace has its events in "default", as everywhere.
	About   corev1.ObjectReference
	Warning bool
	// Reason is one word ("FailedMount"), Text one sentence.
	Reason, Text string
}

// Event has an event written. It never blocks. The same once more is counted, not
// written as another; one that happens too often is dropped (client-go's
// EventCorrelator, as the kubelet's: 25 at once for an object, then one in 5 minutes).
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

// runEvents writes what happened, in its order.
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

// writeEvent writes one event, and tries again while the server cannot be reached
// or is too busy. What it does not take is dropped: events are for people, and
// the same is in the log.
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
			err = nil // the server takes others
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

// sendEvent counts one more of an event that is there, or makes it.
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
		e.ResourceVersion = "" // it has been forgotten there
	}
	written, err := events.Create(ctx, e, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// An earlier request arrived and its answer did not: a name has the nanosecond.
		return e, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write event %s: %w", e.Reason, err)
	}
	return written, nil
}

// ofItself reports whether the server refuses this one event, rather than all that this
// node writes: its namespace is going or gone, or the event is not as the server wants it.
// That is no problem of the node's, which would stand until there is another event.
func ofItself(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsConflict(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// mayPass reports whether a request may be taken another time: it did not arrive,
// or the server has no time.
func mayPass(err error) bool {
	var status apierrors.APIStatus // not an error itself
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError ||
		status.Status().Code == http.StatusTooManyRequests
}
