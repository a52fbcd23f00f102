package manifest

import "bytes"

// maxKeys limits the fields of an object for the fast decoder, because each is compared with those
// before it.
const maxKeys = 64

// scanned is one JSON document, as far as the scanner understands it.
type scanned struct {
	text             []byte
	apiVersion, kind string
}

// scanner finds the end of a JSON document, its kind, and duplicate fields in one pass. It only
// knows strings, brackets and commas, so the decoder must still validate the document; the
// scanner's results hold if that succeeds.
type scanner struct {
	data []byte
	at   int
	// open holds, for each open brace, the index in keys of its first key, and inList for each open
	// square bracket.
	open []int
	keys [][]byte
	// key means that the next string is a field's name.
	key   bool
	found scanned
}

// inList marks a square bracket in open.
const inList = -1

// scan reads the document at the start of data, which is plain and starts with a bracket. It
// returns false if a field repeats or the document has no end.
func scan(data []byte) (scanned, bool) {
	s := scanner{data: data}
	for ; s.at < len(data); s.at++ {
		switch data[s.at] {
		case '{':
			s.open, s.key = append(s.open, len(s.keys)), true
		case '[':
			s.open, s.key = append(s.open, inList), false
		case '}', ']':
			if len(s.open) == 0 {
				return scanned{}, false
			}
			last := len(s.open) - 1
			if s.open[last] != inList {
				s.keys = s.keys[:s.open[last]]
			}
			if s.open, s.key = s.open[:last], false; last == 0 {
				s.found.text = data[:s.at+1]
				return s.found, true
			}
		case ',':
			s.key = len(s.open) > 0 && s.open[len(s.open)-1] != inList
		case '"':
			if !s.text() {
				return scanned{}, false
			}
		}
	}
	return scanned{}, false
}

// text reads the string that starts at s.at, up to its last quote.
func (s *scanner) text() bool {
	end := s.at + 1
	for end < len(s.data) && s.data[end] != '"' {
		if s.data[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(s.data) {
		return false
	}
	value := s.data[s.at+1 : end]
	s.at = end
	if s.key {
		s.key = false
		return s.newKey(value)
	}
	if len(s.open) == 1 && len(s.keys) > 0 { // the value of the last key
		switch string(s.keys[len(s.keys)-1]) {
		case "apiVersion":
			s.found.apiVersion = string(value)
		case "kind":
			s.found.kind = string(value)
		}
	}
	return true
}

// newKey notes a field's name and returns false if it repeats. In plain JSON a name has only one
// spelling.
func (s *scanner) newKey(name []byte) bool {
	if len(s.open) == 0 {
		return false
	}
	others := s.keys[s.open[len(s.open)-1]:]
	for _, other := range others {
		if bytes.Equal(other, name) {
			return false
		}
	}
	s.keys = append(s.keys, name)
	return len(others) < maxKeys
}
