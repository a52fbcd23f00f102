package mount

import "testing"

// What doctor says of an older kernel is so: without ids that are never used again, a mount that was replaced by one of
// the same device looks as the first did. TestTmpfsIsAsAsked holds the sentence about swap,
// TestFilesystemErrorsSayWhy that about the words of errors.
func TestAReplacedMountIsNoticedByItsIDAlone(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
		must(t, k.Bind(source, target, BindOptions{}))
		before := look(t, k, target)
		must(t, k.Unmount(t.Context(), target))
		must(t, k.Bind(source, target, BindOptions{}))
		if noticed := look(t, k, target) != before; noticed != k.has(MountID) {
			t.Errorf("noticed: %v; the kernel has ids: %v", noticed, k.has(MountID))
		}
		must(t, k.Unmount(t.Context(), target))
	})
}
