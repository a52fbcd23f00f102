package builtins

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Allocatable returns what the node has for pods: all of it, because nothing is reserved.
func Allocatable(root string) (corev1.ResourceList, error) {
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return nil, fmt.Errorf("sysinfo: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(root, &disk); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", root, err)
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(memory.Totalram)*int64(memory.Unit), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Blocks)*int64(disk.Bsize), resource.BinarySI),
	}, nil
}
