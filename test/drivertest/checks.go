package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const pod, name = state.PodUID("7f3c2a10-0000-4000-8000-000000000001"), "data"

// leave writes a file into a volume, as a pod would.
func (n *node) leave(target string) {
	n.Helper()
	if n.Fixed {
		return
	}
	if err := os.WriteFile(filepath.Join(target, "left-by-pod"), []byte("precious"), 0o600); err != nil {
		n.Fatal(err)
	}
}

func publishMakesTheTarget(n *node) {
	defer unix.Umask(unix.Umask(0o077))
	v := n.volume(pod, name)
	n.publish(v, pod)
	if st, err := os.Lstat(v.Mounts[pod].Target); err != nil || !st.IsDir() {
		n.Errorf("target: got %v, %v, want a directory", st, err)
	}
	for _, dir := range []string{n.layout.Pods() + "/" + string(pod), n.layout.Pods() + "/" + string(pod) + "/volumes"} {
		if st, err := os.Lstat(dir); err != nil || st.Mode().Perm() != 0o750 {
			n.Errorf("%s: got %v, %v, want mode 0750", dir, st.Mode(), err)
		}
	}
}

func publishTwiceIsPublishOnce(n *node) {
	v := n.volume(pod, name)
	n.publish(v, pod)
	n.leave(v.Mounts[pod].Target)
	before, mounts := tree(n.T, n.layout.Root), len(mountsBelow(n.layout.Root))
	n.publish(v, pod)
	n.wantSame("second publish", before, tree(n.T, n.layout.Root))
	if now := len(mountsBelow(n.layout.Root)); now != mounts {
		n.Errorf("mounts: got %d, want %d as before", now, mounts)
	}
}

func publishAfterRestartKeepsData(n *node) {
	v := n.volume(pod, name)
	n.publish(v, pod)
	n.leave(v.Mounts[pod].Target)
	before := tree(n.T, n.layout.Root)
	n.restart()
	n.publish(v, pod)
	n.wantSame("publish after restart", before, tree(n.T, n.layout.Root))
}

// removalNeedsTheRecordAlone simulates a restart of the daemon after which no object
// describes the volume any longer.
func removalNeedsTheRecordAlone(n *node) {
	v := n.volume(pod, name)
	n.publish(v, pod)
	n.leave(v.Mounts[pod].Target)
	written, err := journal.EncodeRecord(v)
	if err != nil {
		n.Fatal(err)
	}
	n.restart()
	known, err := journal.DecodeRecord(written)
	if err != nil || known.ID != v.ID || known.Spec.Driver != n.Kind ||
		!known.Mounts[pod].MountSpec.Equal(v.Mounts[pod].MountSpec) {
		n.Fatalf("record: got %s, %+v, %v, want %s, %+v", known.ID, known.Mounts, err, v.ID, v.Mounts)
	}
	if n.Fail != nil {
		n.Fail(true) // the volume's content is no longer available
	}
	n.unpublish(known, pod)
	n.wantNothing()
}

func unpublishRemovesAll(n *node) {
	v := n.volume(pod, name)
	for range 2 {
		n.publish(v, pod)
		n.leave(v.Mounts[pod].Target)
		n.unpublish(v, pod)
		n.wantNothing()
	}
}

func unpublishOfNothingIsDone(n *node) {
	v := n.volume(pod, name)
	n.unpublish(v, pod)
	n.publish(v, pod)
	n.unpublish(v, pod)
	n.unpublish(v, pod)
	n.wantNothing()
	delete(v.Mounts, pod)
	n.unpublish(v, pod)
}

func unpublishLeavesOthersAlone(n *node) {
	v, sibling, other := n.volume(pod, name), n.volume(pod, name+"-2"), n.volume("other", name)
	n.publish(v, pod)
	n.publish(sibling, pod)
	n.publish(other, "other")
	for _, target := range []string{sibling.Mounts[pod].Target, other.Mounts["other"].Target} {
		n.leave(target)
	}
	before := tree(n.T, sibling.Mounts[pod].Target)
	maps.Copy(before, tree(n.T, other.Mounts["other"].Target))
	n.unpublish(v, pod)
	after := tree(n.T, sibling.Mounts[pod].Target)
	maps.Copy(after, tree(n.T, other.Mounts["other"].Target))
	n.wantSame("volumes beside", before, after)
	n.unpublish(sibling, pod)
	n.unpublish(other, "other")
	n.wantNothing()
}

func unpublishCrossesNoMount(n *node) {
	v, canary := n.volume(pod, name), n.canary()
	n.publish(v, pod)
	nested := filepath.Join(v.Mounts[pod].Target, "nested")
	var made error
	if n.Fixed {
		nested = filepath.Join(v.Mounts[pod].Target, "dir")
	} else {
		made = os.Mkdir(nested, 0o755)
	}
	if err := errors.Join(made, unix.Mount(canary, nested, "", unix.MS_BIND, "")); err != nil {
		n.Fatal(err)
	}
	if err := n.Driver.Unpublish(n.Context(), v, pod); err == nil {
		n.Error("unpublish with a mount in the volume: got no error")
	}
	if err := unix.Unmount(nested, 0); err != nil {
		n.Fatal(err)
	}
	n.unpublish(v, pod)
	n.wantNothing()
}

func unpublishFollowsNoLink(n *node) {
	if n.Fixed {
		return // no call can leave a link
	}
	v, canary := n.volume(pod, name), n.canary()
	n.publish(v, pod)
	target := v.Mounts[pod].Target
	if err := errors.Join(os.Symlink(canary, target+"/l"), os.Symlink(canary+"/d/f", target+"/f")); err != nil {
		n.Fatal(err)
	}
	n.unpublish(v, pod)
	n.wantNothing()
}

func endedContextChangesNothing(n *node) {
	v := n.volume(pod, name)
	if err := n.Driver.Publish(n.ended(), v, pod); !errors.Is(err, context.Canceled) {
		n.Errorf("publish: got %v, want context.Canceled", err)
	}
	n.publish(v, pod)
	n.leave(v.Mounts[pod].Target)
	before := tree(n.T, n.layout.Root)
	if err := n.Driver.Unpublish(n.ended(), v, pod); !errors.Is(err, context.Canceled) {
		n.Errorf("unpublish: got %v, want context.Canceled", err)
	}
	n.wantSame("unpublish", before, tree(n.T, n.layout.Root))
	n.unpublish(v, pod)
	n.wantNothing()
}

func namesThatLeadElsewhereRefused(n *node) {
	before := tree(n.T, n.layout.Root)
	for _, bad := range []string{
		"", ".", "..", "../x", "a/b", "/etc", "a\x00b", strings.Repeat("x", 256),
		strings.Repeat("x", 4096),
	} {
		byPod, byName := n.volume(state.PodUID(bad), name), n.volume(pod, bad)
		what := fmt.Sprintf("%.16q", bad)
		n.wantRefused("publish to pod "+what, n.Driver.Publish(n.Context(), byPod, state.PodUID(bad)))
		n.wantRefused("unpublish from pod "+what, n.Driver.Unpublish(n.Context(), byPod, state.PodUID(bad)))
		n.wantRefused("publish volume "+what, n.Driver.Publish(n.Context(), byName, pod))
		n.wantRefused("unpublish volume "+what, n.Driver.Unpublish(n.Context(), byName, pod))
	}
	n.wantSame("the node's root", before, tree(n.T, n.layout.Root))
}

func targetOfAnotherRefused(n *node) {
	canary := n.canary()
	for _, target := range []string{canary, "/", "", n.layout.Root, n.layout.BuiltinTarget(n.Kind, "other", name)} {
		v := n.volume(pod, name)
		m := v.Mounts[pod]
		m.Target = target
		v.Mounts[pod] = m
		n.wantRefused("publish at "+target, n.Driver.Publish(n.Context(), v, pod))
		n.wantRefused("unpublish from "+target, n.Driver.Unpublish(n.Context(), v, pod))
	}
}

func linkAboveTheVolumeNotFollowed(n *node) {
	canary := n.canary()
	v := n.volume(pod, name)
	n.publish(v, pod)
	n.unpublish(v, pod)
	dir := filepath.Join(n.layout.Pods(), string(pod))
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.Symlink(canary, filepath.Join(dir, "volumes"))); err != nil {
		n.Fatal(err)
	}
	if err := n.Driver.Publish(n.Context(), v, pod); err == nil {
		n.Error("publish below a link: got no error")
	}
	// Behind the link there is no volume. Unpublish may succeed, but must change
	// nothing.
	_ = n.Driver.Unpublish(n.Context(), v, pod)
}

func recordWithoutMountRefused(n *node) {
	v := n.volume(pod, name)
	delete(v.Mounts, pod)
	n.wantRefused("publish", n.Driver.Publish(n.Context(), v, pod))
}

func badSourceRefusedAndContentStays(n *node) {
	v := n.volume(pod, name)
	n.publish(v, pod)
	n.leave(v.Mounts[pod].Target)
	before := tree(n.T, n.layout.Root)
	bad, spec := v, *v.Spec
	spec.Config, bad.Spec = badConfig, &spec
	n.wantRefused("publish", n.Driver.Publish(n.Context(), bad, pod))
	n.wantSame("publish", before, tree(n.T, n.layout.Root))
	n.unpublish(bad, pod) // removal needs no source
	n.wantNothing()
}

func stepsItLacksAreFinal(n *node) {
	v := n.volume(pod, name)
	_, expand := n.Driver.Expand(n.Context(), v, pod, 1)
	for call, err := range map[string]error{
		"Stage": n.Driver.Stage(n.Context(), v), "Unstage": n.Driver.Unstage(n.Context(), v), "Expand": expand,
	} {
		if call == "Expand" && n.Grows {
			continue
		}
		if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Final || e.Call != call {
			n.Errorf("%s: got %v, want a final error of that call", call, err)
		}
	}
}

func renewalBringsNewContent(n *node) {
	v := n.volume(pod, name)
	n.publish(v, pod)
	before := content(n.T, v.Mounts[pod].Target)
	if n.Change == nil {
		n.publish(v, pod)
		n.wantSame("renewal of a kind without content", before, content(n.T, v.Mounts[pod].Target))
		return
	}
	n.Change()
	n.publish(v, pod)
	if maps.Equal(before, content(n.T, v.Mounts[pod].Target)) {
		n.Error("renewal: the content is the same as before")
	}
}

func failedRenewalKeepsContent(n *node) {
	v := n.volume(pod, name)
	n.publish(v, pod)
	n.leave(v.Mounts[pod].Target)
	before := tree(n.T, n.layout.Root)
	if n.Fail == nil {
		n.wantSame("without a renewal", before, tree(n.T, n.layout.Root))
		return
	}
	n.Fail(true)
	if err := n.Driver.Publish(n.Context(), v, pod); err == nil {
		n.Error("renewal: got no error")
	}
	n.wantSame("failed renewal", before, tree(n.T, n.layout.Root))
	n.Fail(false)
	n.publish(v, pod)
}

// volumesSideBySide concurrently makes and removes volumes of the same pods, which
// share parent directories.
func volumesSideBySide(n *node) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			uid := state.PodUID(fmt.Sprintf("pod-%d", i%2))
			v := n.volume(uid, fmt.Sprintf("volume-%d", i))
			for range 10 {
				if err := n.Driver.Publish(n.Context(), v, uid); err != nil {
					n.Errorf("publish: %v", err)
				}
				if err := n.Driver.Unpublish(n.Context(), v, uid); err != nil {
					n.Errorf("unpublish: %v", err)
				}
			}
		})
	}
	wg.Wait()
	n.wantNothing()
}
