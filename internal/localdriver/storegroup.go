package localdriver

import (
	"fmt"
	"strings"
)

// group returns the record of id.
func (s *store) group(id string) (group, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err, bad := s.broken[fileKey(id)]; bad {
		return group{}, false, fmt.Errorf("group snapshot %s: %w: %w", id, errUnreadable, err)
	}
	g, ok := s.groups[id]
	return g, ok, nil
}

// groupNamed returns the group with the given CreateVolumeGroupSnapshot name.
func (s *store) groupNamed(name string) (group, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.groups {
		if g.Name == name {
			return g, true, nil
		}
	}
	return group{}, false, s.brokenNamed("group", name)
}

// brokenMember returns errUnreadable if the snapshot may belong to a group whose record cannot be
// read: both ids contain the hash of the group's name. The caller holds s.mu.
func (s *store) brokenMember(id string) error {
	if !idPattern.MatchString(id) {
		return nil
	}
	prefix := "group-" + strings.Split(id, "-")[1] + "-"
	for key, err := range s.broken {
		if strings.HasPrefix(key, prefix) {
			return fmt.Errorf("snapshot %s may be of group snapshot %s: %w: %w", id, key, errUnreadable, err)
		}
	}
	return nil
}

// setGroup makes g and its members visible. The caller holds s.mu or is the only user of s.
func (s *store) setGroup(g group) {
	s.groups[g.ID] = g
	for _, n := range g.snapshots() {
		s.snapshots[n.ID] = n
	}
}

// putGroup makes g and its members durable, then visible.
func (s *store) putGroup(g group) error {
	g.Version = recordVersion
	if err := s.write(groupsDir, g.ID, g, durable); prevents(err, g.Phase) {
		return fmt.Errorf("record group snapshot %s: %w", g.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setGroup(g)
	return nil
}

// dropGroup removes the record of a group and its members, durably.
func (s *store) dropGroup(g group) error {
	if err := s.remove(groupsDir, g.ID, durable); err != nil {
		return fmt.Errorf("remove record of group snapshot %s: %w", g.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, g.ID)
	for _, m := range g.Members {
		delete(s.snapshots, m.ID)
	}
	return nil
}
