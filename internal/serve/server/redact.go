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
		spec.MountFlags[i] = hideOptions(flag)
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

// nameKey matches keys whose values name or describe something, such as secretName. option matches an option
// in a list of options or a URL's query.
var (
	nameKey  = regexp.MustCompile(`(name|namespace|class|ref|mode|type|size|capacity)$`)
	userInfo = regexp.MustCompile(`//[^/@\s]+@`)
	option   = regexp.MustCompile(`[^,;&?\s]+`)
)

// isShown reports whether readers see the value of a key. An unknown key may be a password's under any name, so the
// keys that say where a volume is and how it is mounted are listed, without their domain, dots, dashes and case.
func isShown(key string) bool {
	key = strings.ToLower(key[strings.LastIndexByte(key, '/')+1:])
	key = strings.NewReplacer("-", "", "_", "", ".", "").Replace(key)
	if nameKey.MatchString(key) {
		return true
	}
	switch key {
	case "server", "servers", "share", "source", "path", "rootpath", "basepath", "basedir", "dir", "subdir",
		"subpath", "export", "host", "address", "monitors", "portal", "portals", "targetportal", "iqn",
		"targetiqn", "lun", "targetlun", "wwn", "wwns", "targetwwns", "wwids", "device", "devicepath",
		"partition", "port", "endpoint", "endpoints", "region", "zone", "topology", "pool", "datapool",
		"cluster", "clusterid", "poolid", "fsid", "volumeid", "volumehandle", "image", "imagefeatures",
		"reference", "pullpolicy", "dataset", "datastore", "bucket", "prefix", "driver", "mounter",
		"protocol", "provisioner", "csiprovisioneridentity", "replicas", "encrypted", "compression",
		"ephemeral", "poduid", "uid", "gid", "readonly", "shared", "medium", "sizelimit", "iscsiinterface",
		"user", "audience", "fieldpath", "resource", "divisor":
		return true
	case "vers", "nfsvers", "minorversion", "proto", "mountport", "mountproto", "mountvers", "rsize",
		"wsize", "bsize", "timeo", "retrans", "retry", "acregmin", "acregmax", "acdirmin", "acdirmax",
		"actimeo", "lookupcache", "localio", "nconnect", "maxconnect", "clientaddr", "sec", "cache",
		"domain", "iocharset", "codepage", "umask", "fmask", "dmask", "errors", "data", "commit", "barrier",
		"journal", "stripe", "subvol", "subvolid", "compress", "discard", "logbufs", "nrinodes", "huge",
		"mpol", "context", "fscontext", "defcontext", "rootcontext", "x-systemd", "recoverysession", "conf",
		"mountoptions", "options", "mountflags":
		return true
	}
	return false
}

// hideValue returns what readers see of a value.
func hideValue(key, value string) string {
	if !isShown(key) && value != "" {
		return redacted
	}
	return hideOptions(value)
}

// hideOptions hides values within a text: drivers and mount programs take lists of options. What follows a hidden value
// without a key may be a part of it, which has a comma or a space. JSON has keys of its own.
func hideOptions(text string) string {
	if strings.ContainsAny(text, "{}\"") {
		return redacted
	}
	hiding := false
	return option.ReplaceAllStringFunc(userInfo.ReplaceAllString(text, "//"+redacted+"@"), func(o string) string {
		key, value, has := strings.Cut(o, "=")
		switch {
		case !has && hiding:
			return redacted
		case !has || value == "":
			return o
		}
		if hiding = !isShown(key); hiding {
			return key + "=" + redacted
		}
		return o
	})
}

// hideConfig hides values in a built-in kind's source, which is a JSON object.
func hideConfig(config json.RawMessage) json.RawMessage {
	var source any
	if json.Unmarshal(config, &source) != nil {
		return nil
	}
	b, err := json.Marshal(hideWithin("", source))
	if err != nil {
		return nil
	}
	return b
}

// hideWithin hides texts in value, whose key is key; numbers and bools are settings.
func hideWithin(key string, value any) any {
	switch value := value.(type) {
	case string:
		if key == "key" { // of a configMap or a secret
			return value
		}
		return hideValue(key, value)
	case []any:
		for i, v := range value {
			value[i] = hideWithin(key, v)
		}
	case map[string]any:
		for k, v := range value {
			value[k] = hideWithin(k, v)
		}
	}
	return value
}

// forAllPeers adapts a list that is the same for all peers.
func forAllPeers[T any](list func() []T) func(peer) []T { return func(peer) []T { return list() } }
