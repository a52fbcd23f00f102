package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// recordVersion is the version that EncodeRecord writes. Adding a field that an older
// version may ignore and drop without harm keeps the number; any other change takes the
// next number and adds an entry to upgrades.
const recordVersion = 1

// upgrades[n] turns a record of version n into one of version n+1.
var upgrades = [recordVersion]func(json.RawMessage) (json.RawMessage, error){
	// Version 0 was the bare record, without envelope and checksum.
	0: func(r json.RawMessage) (json.RawMessage, error) { return r, nil },
}

// errNewer means that only a newer version can read the record.
var errNewer = errors.New("written by a newer csi-volmgr")

// recordBytes is the initial capacity of an encoder's buffer; most records are smaller.
const recordBytes = 3 << 9

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A record's envelope: the text before and after its checksum.
const (
	envelopeHead   = `{"v":%d,"crc":"`
	envelopeMiddle = `","record":`
)

// EncodeRecord returns the durable form of v, JSON of the form
//
//	{"v":1,"crc":"<CRC-32C of the record's bytes, hex>","record":{...}}
//
// It compacts a Config that is not compact JSON.
func EncodeRecord(v state.Volume) ([]byte, error) {
	var e encoder
	return e.record(&v)
}

// encoder encodes records one after another into one buffer. A buffer per record, large
// enough for the largest, would be garbage at once: 9 % of all bytes allocated for 1,000
// pods (docs/performance.md).
type encoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

func (e *encoder) record(v *state.Volume) ([]byte, error) {
	if e.json == nil {
		e.buf.Grow(recordBytes)
		e.json = json.NewEncoder(&e.buf)
		// Config must come back unchanged, without "<" escaped.
		e.json.SetEscapeHTML(false)
	}
	e.buf.Reset()
	fmt.Fprintf(&e.buf, envelopeHead+"00000000"+envelopeMiddle, recordVersion)
	head := e.buf.Len()
	if err := e.json.Encode(v); err != nil {
		return nil, fmt.Errorf("encode record of volume %q: %w", v.ID, err)
	}
	b := e.buf.Bytes()
	end := len(b) - len("\n")
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(b[head:end], castagnoli))
	hex.Encode(b[head-len("00000000"+envelopeMiddle):], sum[:])
	b[end] = '}'
	return bytes.Clone(b), nil
}

// DecodeRecord reads what EncodeRecord of this or an earlier version wrote. An error says
// why the bytes cannot be read: they are not a record, have a newer version, or are
// damaged.
func DecodeRecord(b []byte) (state.Volume, error) {
	if record, ok := intact(b, recordVersion); ok {
		return decodeVersion(recordVersion, record)
	}
	var env struct {
		Version *int            `json:"v"`
		CRC     string          `json:"crc"`
		Record  json.RawMessage `json:"record"`
	}
	if err := json.Unmarshal(b, &env); err != nil {
		return state.Volume{}, fmt.Errorf("not a record: %w", err)
	}
	version, record := 0, json.RawMessage(b)
	if env.Version != nil {
		version, record = *env.Version, env.Record
	}
	switch {
	case version > recordVersion:
		return state.Volume{}, fmt.Errorf("record version %d: %w, this one reads up to %d", version, errNewer, recordVersion)
	case version < 0, version == 0 && env.Version != nil:
		return state.Volume{}, fmt.Errorf("record version %d does not exist", version)
	}
	if sum := fmt.Sprintf("%08x", crc32.Checksum(record, castagnoli)); version > 0 && sum != env.CRC {
		return state.Volume{}, fmt.Errorf("checksum mismatch: the record says %q, its bytes give %q", env.CRC, sum)
	}
	return decodeVersion(version, record)
}

// intact returns the record in b if b is exactly what EncodeRecord writes for this
// version and the checksum is right. It spares a start from parsing each record twice.
func intact(b []byte, version int) (record []byte, ok bool) {
	const sum = len("00000000")
	crc, ok := bytes.CutPrefix(b, fmt.Appendf(nil, envelopeHead, version))
	if !ok || len(crc) < sum {
		return nil, false
	}
	record, ok = bytes.CutPrefix(crc[sum:], []byte(envelopeMiddle))
	if !ok {
		return nil, false
	}
	if record, ok = bytes.CutSuffix(record, []byte("}")); !ok {
		return nil, false
	}
	return record, fmt.Sprintf("%08x", crc32.Checksum(record, castagnoli)) == string(crc[:sum])
}

func decodeVersion(version int, record json.RawMessage) (v state.Volume, err error) {
	for ; version < recordVersion; version++ {
		if record, err = upgrades[version](record); err != nil {
			return state.Volume{}, fmt.Errorf("upgrade record from version %d: %w", version, err)
		}
	}
	if err := json.Unmarshal(record, &v); err != nil {
		return state.Volume{}, fmt.Errorf("not a record: %w", err)
	}
	if v.ID == "" {
		return state.Volume{}, errors.New("not a record: it has no id")
	}
	if v.Spec == nil {
		v.Spec = &state.Spec{}
	}
	return v, nil
}

// decodeAll splits stored records into readable and unreadable ones. It uses all
// processors because a starting node waits for it.
func decodeAll(stored map[string][]byte) (map[state.VolumeID]state.Volume, map[state.VolumeID]string) {
	type decoded struct {
		key string
		v   state.Volume
		err error
	}
	all := make([]decoded, 0, len(stored))
	for key := range stored {
		all = append(all, decoded{key: key})
	}
	var workers sync.WaitGroup
	for share := range slices.Chunk(all, len(all)/runtime.GOMAXPROCS(0)+1) {
		workers.Go(func() {
			for i := range share {
				d := &share[i]
				d.v, d.err = DecodeRecord(stored[d.key])
			}
		})
	}
	workers.Wait()
	volumes, quarantined := make(map[state.VolumeID]state.Volume, len(all)), map[state.VolumeID]string{}
	for _, d := range all {
		key, v, err := d.key, d.v, d.err
		if err == nil && string(v.ID) != key {
			err = fmt.Errorf("its key is %q, but the record has the id %q", key, v.ID)
			if _, other := stored[string(v.ID)]; !other {
				quarantined[v.ID] = err.Error() // the key or the id is damaged: both may be in use
			}
		}
		if err != nil {
			quarantined[state.VolumeID(key)] = err.Error()
			continue
		}
		volumes[v.ID] = v
	}
	return volumes, quarantined
}

// seal puts a checksum in front of a bucket's value.
func seal(value []byte) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(value)), crc32.Checksum(value, castagnoli))
	return append(b, value...)
}

// unseal checks the checksum and returns the value, which shares memory with b.
func unseal(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%d bytes: too short", len(b))
	}
	if crc32.Checksum(b[4:], castagnoli) != binary.BigEndian.Uint32(b) {
		return nil, errors.New("checksum mismatch")
	}
	return b[4:len(b):len(b)], nil
}
