package server

import (
	"fmt"
	"strings"
	"testing"
)

// explain says of uses that no process has what csi-volmgr has seen of them, and not that they are fine.
func TestExplainSaysWhichUsesHaveNoProcess(t *testing.T) {
	const unheld = "no process that the kernel shows: 2 uses have had none since 2026-11-28T12:00:00Z"
	for want, v := range map[string]NamedVolume{
		unheld:                        {Name: "db", FrontEnd: "docker", Uses: map[string]int{"c1": 2}, Unheld: unheld},
		"process 7 (postgres)":        {Name: "db", FrontEnd: "docker", Holders: []string{"process 7 (postgres)"}},
		"unknown: /proc":              {Name: "db", FrontEnd: "docker", HoldersUnknown: "/proc"},
		"until the volume is deleted": {Name: "db", FrontEnd: "nomad", Standing: true},
	} {
		var e Explanation
		Facts{Named: []NamedVolume{v}}.explainNamed(&e)
		if got := fmt.Sprint(e); !strings.Contains(got, want) {
			t.Errorf("explain says %s, want %q", got, want)
		}
	}
}
