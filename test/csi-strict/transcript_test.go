package csistrict

import (
	"os"
	"testing"
)

// If a process is killed in the middle of a line, the lines of the next process are intact.
func TestALineThatAKillCutOffIsRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(transcriptPath(dir), []byte("{\"event\":\"begin\",\"id\":1}\n{\"event\":\"end\",\"id"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := openTranscript(transcriptPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer next.f.Close()
	if err := next.write(Event{Event: EventUp}); err != nil {
		t.Fatal(err)
	}
	events, err := ReadTranscript(dir)
	if err != nil || len(events) != 2 || events[0].Event != EventBegin || events[1].Event != EventUp {
		t.Errorf("got %+v, %v", events, err)
	}
}
