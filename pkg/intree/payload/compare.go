package payload

import (
	"bytes"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// same reports whether the set called name holds exactly the files, with their
// modes and group. What cannot be read is not the same: it is then written anew.
func (s *set) same(name string) bool {
	in, err := openDir(s.fd, name)
	if err != nil {
		return false
	}
	defer in.Close()
	dirs := map[string]bool{".": true}
	for _, sub := range s.dirs() {
		dirs[sub] = true
	}
	for sub := range dirs {
		if !s.sameDir(in, sub, dirs) {
			return false
		}
	}
	for p, file := range s.files {
		if !s.sameFile(in, p, file) {
			return false
		}
	}
	return true
}

// sameDir reports whether sub has its mode and no entry that is not in the
// files or dirs.
func (s *set) sameDir(in *os.File, sub string, dirs map[string]bool) bool {
	f, err := openDir(int(in.Fd()), sub)
	if err != nil {
		return false
	}
	defer f.Close()
	if !s.sameStat(f, unix.S_IFDIR|s.mode(dirMode, true)) {
		return false
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, name := range names {
		p := path.Join(sub, name)
		if _, ok := s.files[p]; !ok && !dirs[p] {
			return false
		}
	}
	return true
}

func (s *set) sameFile(in *os.File, p string, file File) bool {
	// Not blocking, should there be a named pipe.
	f, err := open(int(in.Fd()), p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if !s.sameStat(f, unix.S_IFREG|s.mode(file.Mode, false)) || !sameOwner(f, file.Owner) {
		return false
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(len(file.Data))+1))
	return err == nil && bytes.Equal(data, file.Data)
}

// sameStat reports whether f has type and mode, and the group if there is one.
func (s *set) sameStat(f *os.File, mode uint32) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	return st.Mode == mode && (s.group == nil || int64(st.Gid) == s.group.GID)
}

// sameOwner reports whether f belongs to uid, or to us where there is none.
func sameOwner(f *os.File, uid *int64) bool {
	want := int64(os.Geteuid())
	if uid != nil {
		want = *uid
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && int64(st.Uid) == want
}
