package server

import (
	"slices"
	"testing"
)

// What an event says of a pod's volume is a cause in the pod's explanation, word
// for word; where it says nothing, the explanation has no cause either.
//
// Items: O09.
func TestEventsSayWhatTheExplanationSays(t *testing.T) {
	said := 0
	for name, f := range map[string]Facts{
		"driver absent": driverAbsent(), "driver refused": driverRefusedAtSocket(), "claim not bound": claimNotBound(),
		"attachment": attachWaiting(), "in flight": stageInFlight(), "unavailable": stageUnavailable(), "walking": walking(),
		"aborted": aborted(), "invalid": refusedInvalid(), "permission": permissionDenied(), "exclusive": exclusiveElsewhere(),
		"sources": sourcesNotSynced(), "removal": removalWaitsForDriver(), "busy": targetBusy(), "expand": expandRefused(), "fine": allFine(),
	} {
		for _, p := range f.Pods {
			e, err := Explain(f, "pod", p.Pod.Namespace+"/"+p.Pod.Name)
			if err != nil {
				t.Fatal(err)
			}
			var causes []string
			for _, l := range e.Lines {
				if l.Label == "because" {
					causes = append(causes, l.Text)
				}
			}
			for _, v := range p.Volumes {
				because := f.Because(p.Pod.UID, v)
				if because != "" {
					said++
				}
				if because != "" && !slices.Contains(causes, because) || because == "" && len(p.Volumes) == 1 && len(causes) > 0 && name != "removal" && name != "sources" {
					t.Errorf("%s: event %q, explanation %q", name, because, causes)
				}
			}
		}
	}
	if said < 10 {
		t.Errorf("only %d have something to say", said)
	}
}
