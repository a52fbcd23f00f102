package outage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Finding is something that could not be read from the API server, or written to it.
type Finding struct {
	// What names what is read or written: "pods of node n1".
	What string
	// Text says in a sentence why that failed.
	Text string
	// Cause is the cause; "" if only this object is affected.
	Cause Cause
	// Reason is Text without the object.
	Reason string
	Since  time.Time
	// Vital is set if the node learns nothing new about its pods without it.
	Vital bool
	// Follows is set for a consequence of other failures, which is hidden during an outage.
	Follows bool
}

// Outage describes an API server that is unavailable to this node.
type Outage struct {
	Cause Cause
	// Reason says in a sentence why requests fail.
	Reason string
	Since  time.Time
	// Vital is set if the node learns nothing new about its pods.
	Vital bool
	// Waits lists what cannot be read or written, sorted, then the consequences (Finding.Follows).
	Waits []string
}

// Fold combines the findings that an outage of the server causes into one Outage, nil if
// there is none, and returns the other findings unchanged.
//
// A refusal (403) or an error of the server (500) may concern only one object. It counts
// as an outage if the node's pods cannot be read for the same cause.
func Fold(all []Finding) (*Outage, []Finding) {
	vital := map[Cause]bool{}
	for _, f := range all {
		vital[f.Cause] = vital[f.Cause] || f.Vital
	}
	var folded, rest []Finding
	for _, f := range all {
		if f.Cause.whole() || f.Cause != "" && vital[f.Cause] {
			folded = append(folded, f)
		} else {
			rest = append(rest, f)
		}
	}
	if len(folded) == 0 {
		return nil, rest
	}
	var follows []string
	rest = slices.DeleteFunc(rest, func(f Finding) bool {
		if f.Follows {
			follows = append(follows, f.What+": "+f.Text)
		}
		return f.Follows
	})
	head := slices.MinFunc(folded, func(a, b Finding) int {
		return cmp.Or(last(a.Vital, b.Vital), a.Since.Compare(b.Since), cmp.Compare(a.What, b.What))
	})
	o := Outage{Cause: head.Cause, Reason: head.Reason, Since: head.Since, Vital: head.Vital}
	for _, f := range folded {
		o.Waits = append(o.Waits, f.What)
		if f.Since.Before(o.Since) {
			o.Since = f.Since
		}
	}
	slices.Sort(o.Waits)
	o.Waits = append(o.Waits, follows...)
	return &o, rest
}

// last compares bools so that true sorts before false.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// maxNamed is how many of the waiting things Text names.
const maxNamed = 3

// Text describes the outage in a few sentences; host is the server's address.
func (o *Outage) Text(host string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, since %s. ", strings.TrimRight(o.Reason, ". \n"), o.Since.UTC().Format(time.RFC3339))
	if o.Vital {
		b.WriteString("What is mounted stays, its pods go on, and nothing is unmounted; new pods, claims, attachments, " +
			"secrets and tokens wait")
	} else {
		b.WriteString("What is mounted stays, and its pods go on; what waits: " + o.named())
	}
	fmt.Fprintf(&b, ". %s (all that waits: csi-volmgr get problems -o json)", o.look(host))
	return b.String()
}

// named names the first maxNamed things that wait.
func (o *Outage) named() string {
	if len(o.Waits) <= maxNamed {
		return strings.Join(o.Waits, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(o.Waits[:maxNamed], ", "), len(o.Waits)-maxNamed)
}

// look says how to investigate.
func (o *Outage) look(host string) string {
	switch o.Cause {
	case BadCertificate:
		address := host[strings.LastIndex(host, "/")+1:]
		return fmt.Sprintf("Look with: openssl s_client -connect %s </dev/null | openssl x509 -noout -dates -issuer; "+
			"the daemon's own certificate is in its kubeconfig", address)
	case Unauthorized:
		return "Look with: kubectl --kubeconfig=FILE auth whoami, with the daemon's kubeconfig; give it credentials that " +
			"have not expired"
	case Refused:
		return "Look with: kubectl --kubeconfig=FILE auth can-i --list, with the daemon's kubeconfig; " +
			"deploy/kustomize/rbac.yaml has what it needs"
	}
	return fmt.Sprintf("Look with: curl -k '%s/readyz?verbose'", host)
}
