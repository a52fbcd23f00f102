package state

import "io/fs"

// Owner is the ownership and mode to give a directory; a nil field leaves it unchanged.
type Owner struct {
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
	// Mode has permission, setuid, setgid and sticky bits as chmod(2) takes them.
	Mode *fs.FileMode `json:"mode,omitempty"`
}

// IsZero reports whether o changes nothing.
func (o Owner) IsZero() bool { return o.UID == nil && o.GID == nil && o.Mode == nil }
