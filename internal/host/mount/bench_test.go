package mount

import (
	"fmt"
	"testing"
)

func BenchmarkBindAndUnmount(b *testing.B) {
	k, dir := New(), scratch(b)
	target := mkdir(b, dir, "target")
	for b.Loop() {
		must(b, k.Bind(dir, target, BindOptions{ReadOnly: true, NoSuid: true, NoDev: true}))
		must(b, k.Unmount(b.Context(), target))
	}
}

// BenchmarkLook must not depend on the number of mounts.
func BenchmarkLook(b *testing.B) {
	for _, others := range []int{0, 100, 20_000} {
		b.Run(fmt.Sprintf("mounts=%d", others), func(b *testing.B) {
			k, dir, target := manyMounts(b, others)
			for b.Loop() {
				if !look(b, k, target).Mounted {
					b.Fatalf("not mounted below %s", dir)
				}
			}
		})
	}
}

func BenchmarkList(b *testing.B) {
	for _, others := range []int{100, 5000} {
		for _, without := range []Feature{0, MountID} {
			b.Run(fmt.Sprintf("mounts=%d/without=%v", others, without), func(b *testing.B) {
				k, dir, _ := manyMounts(b, others)
				k = k.Without(without)
				for b.Loop() {
					if entries, err := k.List(b.Context(), dir); err != nil || len(entries) != others+2 {
						b.Fatalf("%d mounts, %v", len(entries), err)
					}
				}
			})
		}
	}
}

// manyMounts makes n mounts, and one more at target, below a directory that is itself a mount.
func manyMounts(b *testing.B, n int) (k *Kernel, dir, target string) {
	b.Helper()
	k, dir = New(), scratch(b)
	source := mkdir(b, scratch(b), "source") // its mount has no children, so a bind costs the same each time
	for i := range n {
		must(b, k.Bind(source, mkdir(b, dir, fmt.Sprint(i)), BindOptions{}))
	}
	target = mkdir(b, dir, "target")
	must(b, k.Bind(source, target, BindOptions{}))
	return k, dir, target
}
