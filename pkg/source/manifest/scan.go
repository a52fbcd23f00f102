package manifest

import "bytes"

// maxKeys is how many fields an object of the quick way may have: each is compared
// with those before it.
const maxKeys = 64

// scanned is one JSON document, as far as one look at each byte tells.
type scanned struct {
	text             []byte
	apiVersion, kind string
}

// scanner finds the end of a JSON document, its kind, and fields that are there
// twice. It knows strings, brackets and commas alone: what it takes for a document
// has to be checked by the decoder, and is then what it takes it for.
type scanner struct {
	data []byte
	at   int
	// open has for each bracket that is open where its keys begin in keys, or
	// inList for one that has none.
	open []int
	keys [][]byte
	// key is whether the next string is a field's name.
	key   bool
	found scanned
}

// inList stands for a bracket of a list.
const inList = -1

// scan reads the document with which data, which is plain and has a bracket first,
// begins. It is false where a field is there twice, or the document has no end.
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

// text reads the string that begins at s.at, to its last quote.
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
	if len(s.open) == 1 && len(s.keys) > 0 { // it is the value of the last key
		switch string(s.keys[len(s.keys)-1]) {
		case "apiVersion":
			s.found.apiVersion = string(value)
		case "kind":
			s.found.kind = string(value)
		}
	}
	return true
}

// newKey notes the name of a field. Plain JSON has one way to write each name.
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
