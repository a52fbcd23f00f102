package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Each string that Kubernetes' storage tests look for in a node's events and errors is in a string
// of this program, or the document says whose it is. With KUBERNETES_SOURCE, the module's
// directory (make asserted), the document has each that is there, and no other.
func TestWhatKubernetesTestsLookForIsSaid(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("../..", scenarioDocument))
	if err != nil {
		t.Fatal(err)
	}
	table, err := assertedRows(string(doc))
	if err != nil || len(table) < 10 {
		t.Fatalf("%d rows, %v", len(table), err)
	}
	words, err := wordsOf("../../internal", "../../pkg")
	if err != nil {
		t.Fatal(err)
	}
	var looked map[string]bool
	if source := os.Getenv("KUBERNETES_SOURCE"); source != "" {
		if looked, err = assertedIn(source); err != nil {
			t.Fatal(err)
		}
		t.Logf("Kubernetes' tests look for %d strings: %q", len(looked), slices.Sorted(maps.Keys(looked)))
	}
	for _, problem := range unmet(table, words, looked) {
		t.Error(problem)
	}
}

// What a test looks for is read wherever it is: a literal, a variable that one of several is given
// to, a field of a case, a format, a constant of Kubernetes.
func TestWhatATestLooksForIsRead(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"pkg/kubelet/events/event.go":           "package events\nconst FailedMountVolume = \"FailedMount\"",
		"pkg/controller/volume/events/event.go": "package events",
		"test/e2e/storage/testsuites/a.go": `package testsuites
const late = "a constant"
var _ = Describe(func() {
	msg := "one"
	if block { msg = "another" }
	other := "looked for by none"
	cases := []c{{failure: "of a case"}}
	s := fields.Set{"reason": events.FailedMountVolume}
	e2eevents.WaitTimeoutForEvent(ctx, cs, ns, s, msg, timeout)
	e2eevents.WaitTimeoutForEvent(ctx, cs, ns, s, cases[0].failure, timeout)
	e2eevents.WaitTimeoutForEvent(ctx, cs, ns, s, fmt.Sprintf("of %s", name), timeout)
	if strings.Contains(event.Message, late) || strings.Contains(other, "no message") { return }
})
func wait() bool { return status.State.Waiting.Reason == "Bad" && strings.Contains(status.State.Waiting.Message, "part") }
`,
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := assertedIn(root)
	want := []string{"Bad", "FailedMount", "a constant", "another", "of %s", "of a case", "one", "part"}
	if got := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	table := map[string]string{"one": ours, "gone": "theirs", "Bad": "theirs"}
	problems := unmet(table, []string{"other words"}, map[string]bool{"one": true, "Bad": true, "part": true})
	if len(problems) != 3 {
		t.Errorf("got %q, want that one is not said, gone is not looked for, and part has no row", problems)
	}
}
