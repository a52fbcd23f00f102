package payload

import (
	"bytes"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// same reports whether the set called name holds exactly the files, with their modes
// and group. If it cannot be read, same returns false, and the set is written again.
func (s *set) same(name string) bool {
	in, err := openDir(s.fd, name)
	if err != nil {
		return false
	}
	defer unix.Close(in)
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

// sameDir reports whether sub has the right mode and no entries except the files and
// dirs.
func (s *set) sameDir(in int, sub string, dirs map[string]bool) bool {
	fd, err := openDir(in, sub)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || !s.sameStat(&st, unix.S_IFDIR|s.mode(dirMode, true)) {
		return false
	}
	names, err := readNames(fd)
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

func (s *set) sameFile(in int, p string, file File) bool {
	// O_NONBLOCK, in case p is a named pipe.
	fd, err := open(in, p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	owner := int64(os.Geteuid())
	if file.Owner != nil {
		owner = *file.Owner
	}
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && s.sameStat(&st, unix.S_IFREG|s.mode(file.Mode, false)) &&
		int64(st.Uid) == owner && st.Size == int64(len(file.Data)) && sameData(fd, file.Data)
}

// sameStat reports whether st has the type and mode, and the set's group if it has one.
func (s *set) sameStat(st *unix.Stat_t, mode uint32) bool {
	return st.Mode == mode && (s.group == nil || int64(st.Gid) == s.group.GID)
}

// sameData reports whether the newly opened file starts with data.
func sameData(fd int, data []byte) bool {
	var buf [readSize]byte
	for len(data) > 0 {
		n, err := unix.Read(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 || n > len(data) || !bytes.Equal(buf[:n], data[:n]) {
			return false
		}
		data = data[n:]
	}
	return true
}
