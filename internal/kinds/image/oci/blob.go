package oci

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"strings"
)

// ErrDigest means that a blob does not match its descriptor.
var ErrDigest = errors.New("the content does not match its digest")

// Digest is the digest of a blob, as sha256:<64 hexadecimal digits>, or sha512 with
// 128.
type Digest string

// digestForm matches a digest of any length: counts in the expression would cost each start
// of the program more than all its uses.
var digestForm = regexp.MustCompile(`^(sha256|sha512):([0-9a-f]+)$`)

func (d Digest) check() error {
	parts := digestForm.FindStringSubmatch(string(d))
	if parts == nil || len(parts[2]) != 2*d.hash().Size() {
		return fmt.Errorf("digest %.140q is neither sha256 nor sha512", string(d))
	}
	return nil
}

// hash returns the digest's hash function. d must begin with one of the two
// names that check wants.
func (d Digest) hash() hash.Hash {
	if strings.HasPrefix(string(d), "sha512:") {
		return sha512.New()
	}
	return sha256.New()
}

// path returns the path of the blob in a layout.
func (d Digest) path() string { return "blobs/" + strings.Replace(string(d), ":", "/", 1) }

// Hex returns the digest without the name of its function: 64 digits for sha256, 128
// for sha512.
func (d Digest) Hex() string {
	_, digits, _ := strings.Cut(string(d), ":")
	return digits
}

// Hasher computes the digest of what is written to it.
type Hasher struct {
	hash.Hash
	want Digest
}

// NewHasher returns a Hasher with the hash function of want.
func NewHasher(want Digest) (Hasher, error) {
	if err := want.check(); err != nil {
		return Hasher{}, err
	}
	return Hasher{want.hash(), want}, nil
}

// Verify returns ErrDigest unless what was written has the wanted digest.
func (h Hasher) Verify() error {
	if got := hex.EncodeToString(h.Sum(nil)); got != h.want.Hex() {
		return fmt.Errorf("found %.16s..., want %s: %w", got, h.want, ErrDigest)
	}
	return nil
}

// Blob is an open blob. Data read from it may be used only after Verify.
type Blob struct {
	content io.ReadCloser
	hasher  Hasher
	left    int64
}

// Read reads at most as many bytes as the blob's descriptor says.
func (b *Blob) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.content.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.hasher.Write(p[:n])
	if err == io.EOF && b.left > 0 {
		err = fmt.Errorf("%d bytes are missing at the end: %w", b.left, ErrDigest)
	}
	return n, err
}

// Verify reads the rest and returns ErrDigest unless the whole blob matches its
// descriptor.
func (b *Blob) Verify() error {
	if _, err := io.Copy(io.Discard, b); err != nil {
		return err
	}
	var more [1]byte
	if n, _ := io.ReadFull(b.content, more[:]); n != 0 {
		return fmt.Errorf("it is longer than its descriptor says: %w", ErrDigest)
	}
	return b.hasher.Verify()
}

// Close closes the blob.
func (b *Blob) Close() error { return b.content.Close() }
