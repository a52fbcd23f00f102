package state

import (
	"slices"
	"testing"
)

// The flags of each code, written a second time, by flag. Four tables had them before, and differed:
//
//   - NOT_FOUND and UNAUTHENTICATED were an ordinary failure for the pace and a refusal
//     for explain. Both hold: the call is retried like any failure, since the storage or a
//     secret may come back, and a person learns of it at once.
//   - RESOURCE_EXHAUSTED was uncertain for every call, and definite for CreateVolume. Both
//     hold: kubelets count it among those in progress, and CreateVolume's errors say that
//     nothing was made.
//   - FAILED_PRECONDITION of NodeExpandVolume is final, but was not infeasible: another
//     size does not help while the volume is in use.
//
// Items: I09.
func TestEachCodeMeansOneThing(t *testing.T) {
	all := []string{
		"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted",
		"FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
	}
	for flag, tt := range map[string]struct {
		of   func(Code) bool
		want []string
	}{
		"overload":      {func(c Code) bool { return c.Overload }, []string{"DeadlineExceeded", "ResourceExhausted", "Unavailable"}},
		"earlier":       {func(c Code) bool { return c.Earlier }, []string{"Aborted"}},
		"conflict":      {func(c Code) bool { return c.Conflict }, []string{"Unknown", "AlreadyExists", "FailedPrecondition", "Aborted", "Internal"}},
		"infeasible":    {func(c Code) bool { return c.Infeasible }, []string{"InvalidArgument", "NotFound", "OutOfRange"}},
		"makes nothing": {func(c Code) bool { return c.MakesNothing }, []string{"InvalidArgument", "NotFound", "PermissionDenied", "ResourceExhausted", "OutOfRange", "Unimplemented", "Unauthenticated"}},
		"rights":        {func(c Code) bool { return c.Unauthorized }, []string{"PermissionDenied", "Unauthenticated"}},
		"person":        {func(c Code) bool { return c.NeedsPerson }, []string{"InvalidArgument", "NotFound", "AlreadyExists", "PermissionDenied", "OutOfRange", "Unimplemented", "Unauthenticated"}},
		"no advice":     {func(c Code) bool { return c.Advice == "" }, []string{"OK", "Canceled", "Unknown", "Internal", "DataLoss"}},
	} {
		for _, call := range []string{"NodeStageVolume", "NodeExpandVolume", "CreateVolume", ""} {
			got := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !tt.of(CodeOf(call, name)) })
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s of %q: got %q, want %q", flag, call, got, tt.want)
			}
		}
	}
	if got := CodeOf("NodeStageVolume", "Code(17)"); got != (Code{Outcome: Uncertain}) {
		t.Errorf("a code of no table: got %+v", got)
	}
}
