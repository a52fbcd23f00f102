package oci

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrReference means that a text is not an image reference.
var ErrReference = errors.New("not an image reference such as registry.example.com/team/name:tag")

// Reference names an image by a tag, by a digest, or by both, in which case the digest
// decides.
type Reference struct {
	// Name includes the registry, such as docker.io/library/busybox.
	Name string
	// Tag is empty only if there is a digest.
	Tag    string
	Digest Digest
}

const (
	maxReference = 512
	maxTag       = 128 // not in tagForm: it would cost each start of the program more than its uses
	defaultHost  = "docker.io"
	// Latest is the default tag.
	Latest = "latest"
)

var (
	// Names and tags follow the distribution specification 1.1; hosts may also have
	// capitals and a port.
	hostForm = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?$`)
	nameForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
)

// ParseReference parses a reference. It expands short ones as Docker does: busybox
// becomes docker.io/library/busybox:latest.
func ParseReference(text string) (Reference, error) {
	bad := func(why string) (Reference, error) {
		return Reference{}, fmt.Errorf("%.100q: %s: %w", text, why, ErrReference)
	}
	if text == "" || len(text) > maxReference {
		return bad(fmt.Sprintf("empty, or longer than %d bytes", maxReference))
	}
	var r Reference
	name, digest, pinned := strings.Cut(text, "@")
	if pinned {
		r.Digest = Digest(digest)
		if err := r.Digest.check(); err != nil {
			return bad(err.Error())
		}
	}
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name, r.Tag = name[:i], name[i+1:]
		if len(r.Tag) > maxTag || !tagForm.MatchString(r.Tag) {
			return bad("invalid tag")
		}
	}
	if r.Tag == "" && !pinned {
		r.Tag = Latest
	}
	host, rest, has := strings.Cut(name, "/")
	if !has || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, rest = defaultHost, name
	}
	if host == "index."+defaultHost {
		host = defaultHost
	}
	if host == defaultHost && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	if !hostForm.MatchString(host) || !nameForm.MatchString(rest) {
		return bad("invalid name")
	}
	r.Name = host + "/" + rest
	return r, nil
}

// String returns the full reference.
func (r Reference) String() string {
	s := r.Name
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + string(r.Digest)
	}
	return s
}
