package state

import "io/fs"

// Owner is what a directory that users are given is to have; a nil field stays as it is.
type Owner struct {
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
	// Mode has permission, setuid, setgid and sticky bits as chmod(2) takes them.
	Mode *fs.FileMode `json:"mode,omitempty"`
}

// IsZero reports whether nothing is asked for.
func (o Owner) IsZero() bool { return o.UID == nil && o.GID == nil && o.Mode == nil }
