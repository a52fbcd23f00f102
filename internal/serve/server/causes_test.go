package server

import "testing"

// The cause of a pod's volume in events and on the status page is in the pod's explanation, word for word. If the
// page has none, the explanation has none either.
//
// Items: O09.
func TestEventsAndPageSayWhatTheExplanationSays(t *testing.T) {
	said := 0
	for _, s := range situations() {
		for _, p := range s.facts.Pods {
			e, err := Explain(s.facts, "pod", p.Pod.Namespace+"/"+p.Pod.Name)
			if err != nil {
				t.Fatal(err)
			}
			labels := map[string]string{}
			causes := 0
			for _, l := range e.Lines {
				if labels[l.Text] = l.Label; l.Label == "because" || l.Label == "last error" || l.Label == "but" {
					causes++
				}
			}
			silent := true
			for _, v := range p.Volumes {
				because, failed := s.facts.Cause(p.Pod.UID, v)
				if why := Failure(v.Retry); failed != (v.Retry.Attempts > 0 && because == why) {
					t.Errorf("%s: %q is the last failure: %v; that is %q", s.file, because, failed, why)
				}
				why := s.facts.Why(p.Pod.UID, v)
				if because != "" {
					said++
				}
				if label := labels[because]; because != "" && label != "because" {
					t.Errorf("%s: event %q, explained as %q", s.file, because, label)
				}
				if label := labels[why]; why != "" && label != "because" && label != "last error" && label != "but" {
					t.Errorf("%s: page %q, explained as %q", s.file, why, label)
				}
				silent = silent && why == ""
			}
			if silent && causes > 0 {
				t.Errorf("%s: the page says nothing, and the explanation %d causes:\n%s", s.file, causes, e)
			}
		}
	}
	if said < 10 {
		t.Errorf("only %d have something to say", said)
	}
}
