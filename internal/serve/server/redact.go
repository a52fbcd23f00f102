package server

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
)

// redacted replaces a value that only owners of the socket may read.
const redacted = "***redacted***"

// volumesFor lists the volumes as the peer may read them. Some users put passwords into
// the attributes and mount options of volumes.
func (s *Server) volumesFor(p peer) []VolumeStatus {
	all := each(s.cfg.Volumes.Volumes(), volumeStatus)
	if p.owner() {
		return all
	}
	for i := range all {
		all[i] = forReader(all[i])
	}
	return all
}

// forReader returns a volume without values that may be secrets.
func forReader(v VolumeStatus) VolumeStatus {
	spec := v.Volume.Spec.Value()
	spec.Context, spec.PublishContext = hideValues(spec.Context), hideValues(spec.PublishContext)
	spec.MountFlags = slices.Clone(spec.MountFlags)
	for i, flag := range spec.MountFlags {
		if key, value, has := strings.Cut(flag, "="); has && isSecret(key, value) {
			spec.MountFlags[i] = key + "=" + redacted
		} else {
			spec.MountFlags[i] = hideOptions(flag)
		}
	}
	if len(spec.Config) > 0 {
		spec.Config = hideConfig(spec.Config)
	}
	v.Volume.Spec, v.Volume.PublishContext = &spec, hideValues(v.Volume.PublishContext)
	v.Volume.Mounts = maps.Clone(v.Volume.Mounts)
	for uid, m := range v.Volume.Mounts {
		m.Context = hideValues(m.Context)
		v.Volume.Mounts[uid] = m
	}
	return v
}

// hideFiles hides which files of a volume processes have open.
func hideFiles(all []holders.Process) []holders.Process {
	all = slices.Clone(all)
	for i, p := range all {
		all[i].Uses = slices.Clone(p.Uses)
		for j := range p.Uses {
			all[i].Uses[j].Path = redacted
		}
	}
	return all
}

func hideValues(m map[string]string) map[string]string {
	m = maps.Clone(m)
	for key, value := range m {
		m[key] = hideValue(key, value)
	}
	return m
}

// secretKey matches keys whose values may be secrets; nameKey matches those of them
// that only name a secret. option matches a key and its value in a list of options or a
// URL's query.
var (
	secretKey = regexp.MustCompile(`(?i)pass|secret|token|cred|key|auth|sas|pwd|login`)
	nameKey   = regexp.MustCompile(`(?i)(name|namespace|class|ref)$`)
	userInfo  = regexp.MustCompile(`://[^/@\s]+@`)
	option    = regexp.MustCompile(`[^,;&?\s=]+=[^,;&\s]+`)
)

func isSecret(key, value string) bool {
	return secretKey.MatchString(key) && !nameKey.MatchString(key) && value != ""
}

func hideValue(key, value string) string {
	if isSecret(key, value) {
		return redacted
	}
	return hideOptions(value)
}

// hideOptions hides such values within a text: drivers and mount programs take lists of options.
func hideOptions(text string) string {
	text = option.ReplaceAllStringFunc(text, func(o string) string {
		if key, value, _ := strings.Cut(o, "="); isSecret(key, value) {
			return key + "=" + redacted
		}
		return o
	})
	return userInfo.ReplaceAllString(text, "://"+redacted+"@")
}

// hideConfig hides such values in a built-in kind's source, which is a JSON object.
func hideConfig(config json.RawMessage) json.RawMessage {
	var fields map[string]any
	if json.Unmarshal(config, &fields) != nil {
		return nil
	}
	for key, value := range fields {
		if text, is := value.(string); is {
			fields[key] = hideValue(key, text)
		}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return b
}

// forAllPeers adapts a list that is the same for all peers.
func forAllPeers[T any](list func() []T) func(peer) []T { return func(peer) []T { return list() } }
