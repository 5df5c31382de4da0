package artifacts

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/minio/minio-go/v7"
)

func (s *s3Store) Create(ctx context.Context, key Key, meta Meta) (*Writer, error) {
	rec, err := newRecord(ctx, key, meta)
	if err != nil {
		return nil, err
	}
	return newWriter(ctx, rec, &s3Sink{store: s, rec: rec}, s.opts.MaxBytes), nil
}

// s3Sink gathers one part in memory. Only a write that outgrows it touches the
// server before commit.
type s3Sink struct {
	store  *s3Store
	rec    record // not sealed
	buf    []byte
	up     *s3Upload // nil until the first part is full
	sealed bool      // the seal may be there
}

func (s *s3Sink) write(ctx context.Context, p []byte) error {
	for len(p) > 0 {
		if len(s.buf) == s.store.opts.PartBytes {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
		n := min(len(p), s.store.opts.PartBytes-len(s.buf))
		s.buf = append(s.buf, p[:n]...)
		p = p[n:]
	}
	return ctx.Err()
}

// flush uploads the buffer as the next part. On an error the buffer stays.
func (s *s3Sink) flush(ctx context.Context) error {
	if s.up == nil {
		up, err := s.store.beginUpload(ctx, s.store.blob(s.rec.key()), s.rec)
		if err != nil {
			return err
		}
		s.up = up
	}
	if err := s.up.part(ctx, s.buf); err != nil {
		return err
	}
	s.buf = s.buf[:0]
	return nil
}

func (s *s3Sink) commit(ctx context.Context, rec record) error {
	err := s.publish(ctx, rec)
	if err == nil && s.up == nil {
		return nil
	}
	// After an error: the request may have been carried out although no answer
	// came, or an earlier attempt of it, so that this one met its own result.
	// After success: some servers mix up a completion and an abort (of a Sweep)
	// that meet, and publish an object without its metadata.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	there, _, lookErr := s.store.head(ctx, rec.key())
	switch {
	case err == nil:
		return s.confirm(ctx, rec, there, lookErr)
	case lookErr == nil && there.Write == rec.Write && there.Bytes == rec.Bytes:
		return nil
	case lookErr == nil || errors.Is(lookErr, errDamaged):
		return ErrExists
	case errors.Is(err, errPrecondition): // the rival was deleted meanwhile, or cannot be read
		return fmt.Errorf("%w: the key was taken a moment ago", ErrUnavailable)
	}
	return err
}

// confirm judges what is found after the server said that it completed rec.
func (s *s3Sink) confirm(ctx context.Context, rec, there record, lookErr error) error {
	ours := lookErr == nil && there.Write == rec.Write
	switch {
	case errors.Is(lookErr, errDamaged), ours && there.Bytes != rec.Bytes:
		if err := s.store.remove(ctx, s.store.blob(rec.key())); err != nil {
			return err
		}
		return ErrAbandoned
	case ours, lookErr == nil, errors.Is(lookErr, ErrNotFound): // deleted since, or even replaced
		return nil
	}
	return lookErr
}

// publish stores everything; its last request is the commit point.
func (s *s3Sink) publish(ctx context.Context, rec record) error {
	if s.up == nil {
		return s.store.put(ctx, s.store.blob(rec.key()), s.buf, rec.SHA256, blobOptions(rec), true)
	}
	if len(s.buf) > 0 {
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	s.sealed = true
	seal := rec.encode()
	if err := s.store.put(ctx, s.store.seal(rec.key(), rec.Write), seal, hexSum(seal), minio.PutObjectOptions{}, false); err != nil {
		return fmt.Errorf("write seal: %w", err)
	}
	return s.up.complete(ctx)
}

func (s *s3Sink) abort() {
	s.buf = nil
	if s.up == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	s.up.abort(ctx) //nolint:errcheck // Sweep takes what stays
	if s.sealed {
		s.dropSeal(ctx)
	}
}

// dropSeal removes the seal unless a commit whose answer was lost did succeed
// and needs it. The upload is gone by now, so this cannot change any more.
func (s *s3Sink) dropSeal(ctx context.Context) {
	there, _, err := s.store.head(ctx, s.rec.key())
	if errors.Is(err, ErrNotFound) || err == nil && there.Write != s.rec.Write {
		s.store.remove(ctx, s.store.seal(s.rec.key(), s.rec.Write)) //nolint:errcheck // a few bytes
	}
}

// s3Upload is a multipart upload in progress.
type s3Upload struct {
	store *s3Store
	name  string
	id    string
	parts []minio.CompletePart
}

func (s *s3Store) beginUpload(ctx context.Context, name string, rec record) (*s3Upload, error) {
	id, err := s.api.NewMultipartUpload(ctx, s.bucket, name, blobOptions(rec))
	if err != nil {
		return nil, s3Error(ctx, err)
	}
	return &s3Upload{store: s, name: name, id: id}, nil
}

func (u *s3Upload) part(ctx context.Context, body []byte) error {
	n := len(u.parts) + 1
	p, err := u.store.api.PutObjectPart(ctx, u.store.bucket, u.name, u.id, n, bytes.NewReader(body), int64(len(body)),
		minio.PutObjectPartOptions{Sha256Hex: hexSum(body)})
	if err != nil {
		return fmt.Errorf("part %d: %w", n, u.whyPartFailed(ctx, s3Error(ctx, err)))
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: n, ETag: p.ETag})
	return nil
}

// whyPartFailed asks whether there is the upload at all: a server that refuses
// a long body hangs up before the client has read the reason.
func (u *s3Upload) whyPartFailed(ctx context.Context, err error) error {
	if !errors.Is(err, ErrUnavailable) {
		return err
	}
	_, ask := u.store.api.ListObjectParts(ctx, u.store.bucket, u.name, u.id, 0, 1)
	if errors.Is(s3Error(ctx, ask), ErrAbandoned) {
		return ErrAbandoned
	}
	return err
}

// complete publishes the parts unless the name is taken.
func (u *s3Upload) complete(ctx context.Context) error {
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	_, err := u.store.api.CompleteMultipartUpload(ctx, u.store.bucket, u.name, u.id, u.parts, o)
	return s3Error(ctx, err)
}

// abort drops the parts; ErrAbandoned if there is no such upload any more.
func (u *s3Upload) abort(ctx context.Context) error {
	return s3Error(ctx, u.store.api.AbortMultipartUpload(ctx, u.store.bucket, u.name, u.id))
}

// blobOptions puts the record into the object's metadata. The stored content
// type is neutral: a bucket that is readable from outside serves no page of
// ours.
func blobOptions(rec record) minio.PutObjectOptions {
	return minio.PutObjectOptions{ContentType: octetStream, UserMetadata: map[string]string{recordMeta: packMeta(rec)}}
}

// packMeta makes a record fit a header: ASCII, and at most about 1.9 KB of the
// 2 KB that S3 allows, since key and name are bounded.
func packMeta(rec record) string { return base64.RawURLEncoding.EncodeToString(rec.encode()) }

func unpackMeta(s string) (record, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return record{}, fmt.Errorf("damaged record: %w", err)
	}
	return decodeRecord(b)
}
