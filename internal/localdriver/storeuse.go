package localdriver

import (
	"fmt"
	"maps"
	"slices"
)

// attachment returns how a volume is in use. If it is not, the result has only an id and a boot id.
// The caller may change the result.
func (s *store) attachment(id string) attachment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.attached[id]
	if !ok {
		return attachment{Version: recordVersion, ID: id, BootID: s.bootID, Targets: map[string]publication{}}
	}
	a.Targets = maps.Clone(a.Targets)
	if a.Targets == nil {
		a.Targets = map[string]publication{}
	}
	return a
}

// attachments returns all attachments, sorted by volume id.
func (s *store) attachments() []attachment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]attachment, 0, len(s.attached))
	for _, id := range slices.Sorted(maps.Keys(s.attached)) {
		all = append(all, s.attached[id])
	}
	return all
}

// putAttachment records how a volume is in use. If it is not in use, it removes the record.
func (s *store) putAttachment(a attachment) error {
	var err error
	if a.empty() {
		err = s.remove(attachedDir, a.ID, volatile)
	} else {
		err = s.write(attachedDir, a.ID, a, volatile)
	}
	if err != nil {
		return fmt.Errorf("record use of volume %s: %w", a.ID, err)
	}
	s.setAttachment(a)
	return nil
}

// endUse is putAttachment after something of a was unmounted. A full disk does not prevent it: a record
// that names too much is harmless, because its readers also ask the kernel.
func (s *store) endUse(a attachment) error {
	err := s.putAttachment(a)
	if !isFull(err) {
		return err
	}
	s.setAttachment(a)
	return nil
}

// setAttachment makes a visible.
func (s *store) setAttachment(a attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.empty() {
		delete(s.attached, a.ID)
	} else {
		s.attached[a.ID] = a
	}
}
