package plan

import "testing"

// A driver all of whose calls hang has no more of the node's calls than leaves room for another driver, as many as that
// one may have, and for removals. A driver that was seen to be fast leaves fewer.
func TestADriverThatHangsLeavesOthersTheirCalls(t *testing.T) {
	l := DefaultLimits()
	for name, tc := range map[string]struct{ more, most, left int }{
		"as it begins": {0, l.Driver - l.Reserved, l.Driver - l.Reserved},
		"fast":         {l.Most - l.Driver, l.Most - l.Reserved, l.Node - l.Reserved - (l.Most - l.Reserved)},
	} {
		node, hung := Running{}, Running{More: tc.more}
		for l.Admit(node, hung, Stage) {
			hung.Calls, hung.Making = hung.Calls+1, hung.Making+1
			node.Calls, node.Making = node.Calls+1, node.Making+1
		}
		if hung.Calls != tc.most {
			t.Errorf("%s: a driver has %d calls that make volumes, want %d", name, hung.Calls, tc.most)
		}
		if !l.Admit(node, hung, Unstage) {
			t.Errorf("%s: its removals wait for calls that hang", name)
		}
		other := Running{}
		for l.Admit(node, other, Stage) {
			other.Calls, other.Making = other.Calls+1, other.Making+1
			node.Calls, node.Making = node.Calls+1, node.Making+1
		}
		if other.Calls != tc.left {
			t.Errorf("%s: another driver has %d calls, want %d", name, other.Calls, tc.left)
		}
	}
}
