// Package diskfs lists the file systems that a block device may be mounted as, and the mount
// options of each that are allowed.
//
// It only contains these lists. Package resolve checks manifests against them, and package mount,
// which calls the kernel, checks again. A file system that ignores its device (proc, overlay,
// cgroup2) would show a pod data that no volume contains, and so would an option that names another
// device or path.
package diskfs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrType means that a file system is not a disk file system.
var ErrType = errors.New("not a disk file system")

// ErrOption means that a mount option is not allowed.
var ErrOption = errors.New("not an allowed mount option")

// ext contains the options of ext2, ext3 and ext4. It omits journal_dev and journal_path, which
// name another device, and the quota files, which are internal to the file system.
const ext = "acl noacl user_xattr nouser_xattr barrier nobarrier data commit delalloc nodelalloc discard nodiscard " +
	"errors " +
	"init_itable noinit_itable stripe max_batch_time min_batch_time journal_ioprio auto_da_alloc noauto_da_alloc " +
	"dioread_nolock dioread_lock grpid nogrpid bsdgroups sysvgroups minixdf bsddf resuid resgid noload norecovery orlov " +
	"oldalloc " +
	"inode_readahead_blks journal_checksum nojournal_checksum journal_async_commit quota noquota usrquota grpquota " +
	"prjquota " +
	"dax max_dir_size_kb i_version block_validity noblock_validity nouid32 nombcache no_mbcache mb_optimize_scan " +
	"prefetch_block_bitmaps no_prefetch_block_bitmaps sb debug check nocheck nolazytime"

// fileSystems maps each file system to its allowed options, without those in [common].
var fileSystems = map[string]string{
	"ext2": ext, "ext3": ext, "ext4": ext,
	// Without logdev and rtdev, which name other devices.
	"xfs": "allocsize attr2 noattr2 dax discard nodiscard grpid bsdgroups nogrpid sysvgroups filestreams ikeep " +
		"noikeep inode32 inode64 largeio nolargeio logbsize logbufs noalign norecovery nouuid sunit swidth swalloc " +
		"wsync noquota quota uquota usrquota uqnoenforce qnoenforce gquota grpquota gqnoenforce pquota prjquota " +
		"pqnoenforce barrier nobarrier",
	// Without device, which names other devices.
	"btrfs": "acl noacl autodefrag noautodefrag barrier nobarrier clear_cache commit compress compress-force datacow " +
		"nodatacow datasum nodatasum degraded discard nodiscard enospc_debug noenospc_debug fatal_errors flushoncommit " +
		"noflushoncommit max_inline metadata_ratio norecovery nologreplay rescue skip_balance space_cache nospace_cache " +
		"ssd ssd_spread nossd nossd_spread subvol subvolid thread_pool treelog notreelog usebackuproot " +
		"user_subvol_rm_allowed",
	"f2fs": "acl noacl user_xattr nouser_xattr background_gc gc_merge nogc_merge disable_roll_forward norecovery " +
		"discard nodiscard active_logs inline_xattr noinline_xattr inline_data noinline_data inline_dentry " +
		"noinline_dentry flush_merge noflush_merge barrier nobarrier fastboot extent_cache noextent_cache mode " +
		"fsync_mode alloc_mode quota noquota usrquota grpquota prjquota atgc checkpoint compress_algorithm " +
		"compress_log_size compress_chksum compress_mode",
	"vfat":  fat + " nonumtail usefree shortname rodir showexec nfs tz dos1xfloppy uni_xlate check",
	"exfat": fat + " namecase keep_last_dots sys_tz zero_size_dir",
	"iso9660": "uid gid mode dmode map norock nojoliet cruft unhide hide showassoc check block session sbsector " +
		"iocharset utf8 overriderockperm nocompress",
	"squashfs": "errors threads",
	// Without device, which names other devices.
	"erofs": "user_xattr nouser_xattr acl noacl cache_strategy dax",
}

const fat = "uid gid umask dmask fmask allow_utime codepage iocharset utf8 quiet errors discard flush time_offset " +
	"sys_immutable"

// common contains the SELinux options, which every file system supports.
const common = "context fscontext defcontext rootcontext seclabel"

// Types returns the sorted names of the file systems.
func Types() []string { return slices.Sorted(maps.Keys(fileSystems)) }

// Has reports whether a block device may be mounted as fsType.
func Has(fsType string) bool {
	_, ok := fileSystems[fsType]
	return ok
}

// Check returns ErrType if fsType is not a disk file system, and ErrOption for the first option,
// such as "data=ordered", that fsType does not allow.
func Check(fsType string, options []string) error {
	if !Has(fsType) {
		return fmt.Errorf("fsType: found %.64q, want one of %s: %w", fsType, strings.Join(Types(), ", "), ErrType)
	}
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		label := slices.Contains(strings.Fields(common), key)
		if !label && !slices.Contains(strings.Fields(fileSystems[fsType]), key) {
			return fmt.Errorf("mount option %.64q of %s: %w", key, fsType, ErrOption)
		}
		if value == "panic" && (key == "errors" || key == "fatal_errors") {
			return fmt.Errorf("mount option %s of %s: the owner of the disk could end this node: found panic, want %s: %w", key,
				fsType, calm(fsType), ErrOption)
		}
		if strings.ContainsFunc(value, func(c rune) bool { return !plain(c) && (!label || c != ',' && c != '"') }) {
			return fmt.Errorf("mount option %q of %s: found the value %.64q, want letters, digits and . _ - : / @ + %%: %w", key,
				fsType, value, ErrOption)
		}
	}
	return nil
}

// calm says what to write instead of panic.
func calm(fsType string) string {
	if fsType == "btrfs" {
		return "fatal_errors=bug, or no such option"
	}
	return "errors=remount-ro or errors=continue"
}

// Complete returns the options with those that a disk has unless it asks for others. The
// superblock of ext2, ext3 and ext4 may say that an error of the file system ends the node.
func Complete(fsType string, options []string) []string {
	says := func(o string) bool { return strings.HasPrefix(o, "errors=") }
	if fileSystems[fsType] != ext || slices.ContainsFunc(options, says) {
		return options
	}
	return append(slices.Clone(options), "errors=remount-ro")
}

// verbs are options that tell mount(8) to do something other than a new mount.
const verbs = "bind rbind remount move loop shared rshared slave rslave private rprivate unbindable runbindable"

// CheckWords returns ErrOption for the first option that requests another kind of mount, such as
// "remount". As in a PersistentVolume's mountOptions, each element may contain several options
// separated by commas.
func CheckWords(options []string) error {
	for _, o := range options {
		for word := range strings.SplitSeq(o, ",") {
			if slices.Contains(strings.Fields(verbs), word) {
				return fmt.Errorf("mount option %q asks for another kind of mount: %w", word, ErrOption)
			}
		}
	}
	return nil
}

func plain(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-:/@+%", c)
}
