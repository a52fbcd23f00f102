package report

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// latest knows which Node is the latest: the one that the watch shows, or the answer to a write until the
// watch has caught up. The order of versions says which, but versions begin again when etcd is put back to
// an earlier copy. So an answer that outranks the watch for long is read again.
type latest struct {
	answer *corev1.Node // nil while there is none
	// since is when the watch first showed a Node of a lower version than the answer's; zero if it does not.
	since time.Time
}

// of returns the latest Node if the watch shows watched.
func (l *latest) of(watched *corev1.Node, now time.Time) *corev1.Node {
	if watched == nil || l.answer == nil || watched.UID != l.answer.UID || !older(watched, l.answer) {
		l.since = time.Time{}
		return watched
	}
	if l.since.IsZero() {
		l.since = now
	}
	return l.answer
}

// answered records the Node in an answer of the API server.
func (l *latest) answered(n *corev1.Node) { l.answer, l.since = n, time.Time{} }

// until returns when the answer is to be read again; zero for never.
func (l *latest) until() time.Time {
	if l.since.IsZero() {
		return time.Time{}
	}
	return l.since.Add(checkEvery)
}

// latestNode is l.of, and reads the Node if the watch has been behind the answer for long.
func (r *Reporter) latestNode(ctx context.Context, l *latest, watched *corev1.Node) *corev1.Node {
	n, now := l.of(watched, time.Now()), time.Now()
	if l.since.IsZero() || now.Before(l.until()) {
		return n
	}
	is, err := r.currentNode(ctx)
	if err != nil {
		l.since = now // others report an outage
		return n
	}
	l.answered(is)
	return l.of(watched, now)
}

// currentNode reads the Node as the watch of it does.
func (r *Reporter) currentNode(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	list, err := r.config.Core.Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + r.config.NodeName})
	switch {
	case err != nil:
		return nil, err
	case len(list.Items) != 1:
		return nil, errors.New("read the Node: it is not there")
	}
	return &list.Items[0], nil
}
